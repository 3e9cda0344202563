"""Fetches a key set over HTTP: from one address, once, within bounds.

No redirects, no proxies from the environment, no cookies, a limit on time and one on bytes; what
is fetched decides who is let in. When to fetch is `key_cache`'s business.
"""

import aiohttp

from steelyard.gateway.auth.config import JwtConfig
from steelyard.gateway.auth.key_set import KeySet, parse_key_set

__all__ = ["fetch_key_set"]

_MAX_BYTES = 1024**2
_TIMEOUT_S = 5.0


async def fetch_key_set(config: JwtConfig) -> KeySet:
    """Raises `OSError` or `ValueError` whose text says what is wrong, without the answer's."""
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(
                config.jwks_url,
                allow_redirects=False,
                headers={"accept": "application/jwk-set+json, application/json"},
            ) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"{config.jwks_url} answered with status {answer.status}")
            body = await _read(answer.content)
    except aiohttp.ClientError as error:
        # The texts of most of them are empty or repeat the address.
        raise OSError(f"{config.jwks_url}: {type(error).__name__}: {error}") from error
    except TimeoutError as error:
        raise OSError(f"{config.jwks_url} took longer than {_TIMEOUT_S:g} s") from error
    return parse_key_set(body, config.algorithms)


async def _read(stream: aiohttp.StreamReader) -> bytes:
    body = b""
    while part := await stream.readany():
        body += part
        if len(body) > _MAX_BYTES:
            raise ValueError(f"the answer is larger than {_MAX_BYTES >> 20} MiB")
    return body

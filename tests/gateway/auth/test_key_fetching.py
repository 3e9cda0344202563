"""Keys are fetched from one address, within bounds, over real sockets."""

from collections.abc import Iterator

import pytest

from steelyard.gateway.auth import key_fetch
from steelyard.gateway.auth.key_fetch import fetch_key_set

from .issuer import Provider, jwt_config, provider


@pytest.fixture
def idp() -> Iterator[Provider]:
    with provider() as opened:
        yield opened


async def test_a_key_set_is_fetched(idp: Provider) -> None:
    found = await fetch_key_set(jwt_config(jwks_url=idp.url))
    assert {key.kid for key in found.keys} == {"rsa", "ec", "okp"}


async def test_redirects_are_not_followed(idp: Provider) -> None:
    idp.status, idp.headers = 302, {"location": idp.url + "/elsewhere"}
    with pytest.raises(ValueError, match="status 302"):
        await fetch_key_set(jwt_config(jwks_url=idp.url))
    assert idp.paths == ["/keys"]


async def test_an_error_page_is_no_key_set(idp: Provider) -> None:
    idp.status = 500
    with pytest.raises(ValueError, match="status 500"):
        await fetch_key_set(jwt_config(jwks_url=idp.url))


async def test_an_answer_without_end_is_cut_off(idp: Provider) -> None:
    idp.body = b" " * (1024**2 + 1)
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        await fetch_key_set(jwt_config(jwks_url=idp.url))


async def test_a_compressed_answer_without_end_is_cut_off(idp: Provider) -> None:
    import gzip

    idp.body, idp.headers = gzip.compress(b" " * 1024**2 * 64), {"content-encoding": "gzip"}
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        await fetch_key_set(jwt_config(jwks_url=idp.url))


async def test_a_provider_that_takes_too_long_is_given_up(
    idp: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_fetch, "_TIMEOUT_S", 0.2)
    idp.delay.clear()
    with pytest.raises(OSError, match=r"took longer than 0\.2 s"):
        await fetch_key_set(jwt_config(jwks_url=idp.url))


async def test_nobody_at_the_address_is_an_error_that_names_it(idp: Provider) -> None:
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:1/keys: ClientConnectorError"):
        await fetch_key_set(jwt_config(jwks_url="http://127.0.0.1:1/keys"))


async def test_a_proxy_of_the_environment_is_not_asked(
    idp: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await fetch_key_set(jwt_config(jwks_url=idp.url))

"""Which server is verified, and how hard: values only."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from steelyard.contract.errors import InvalidRequest

__all__ = ["Target", "VerifyConfig", "read_target"]

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """One server, as its URL names it."""

    url: str
    """Without a trailing slash or `/v1`."""
    host: str
    port: int
    is_tls: bool
    base_path: str
    """What stands before `/v1`; usually empty."""
    model: str | None = None
    """None takes the first model the server lists."""
    api_key: str | None = field(default=None, repr=False)
    """Sent as a bearer token; None sends none."""

    @property
    def authority(self) -> str:
        """What the `Host` field says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = _DEFAULT_PORTS["https" if self.is_tls else "http"]
        return host if self.port == usual else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyConfig:
    """How to verify."""

    only: tuple[str, ...] = ()
    """Patterns of check names; empty means all."""
    skip: tuple[str, ...] = ()
    check_timeout_s: float = 30.0
    """A check that takes longer has failed."""
    concurrency: int = 8
    """Requests at once where a check is about concurrency."""
    tie_nats: float = 0.3
    """Two tokens whose log-probabilities differ by no more are tied: either is a correct greedy
    choice. Logits in bf16 between 16 and 32 are 0.125 apart, and two of them are compared."""
    long_context_tokens: int = 16_384
    """No prompt is longer than this, however much the model can hold."""


def read_target(url: str, *, model: str | None = None, api_key: str | None = None) -> Target:
    """Raises `InvalidRequest` for what is no URL of a server."""
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InvalidRequest(f"{url} is no URL: {error}", param="URL") from error
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise InvalidRequest(
            f"{url} is no URL of a server", param="URL", fix="write http://host:port"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidRequest(
            "the URL holds a user name, a query or a fragment",
            param="URL",
            fix="write http://host:port; name the variable with the key with --api-key-env",
        )
    if re.fullmatch("[!-~]*", parts.path) is None:
        raise InvalidRequest(
            f"{url!r}: its path holds characters that must be written as %XX", param="URL"
        )
    base_path = parts.path.rstrip("/").removesuffix("/v1")
    return Target(
        url=f"{parts.scheme}://{parts.netloc}{base_path}",
        host=parts.hostname,
        port=_DEFAULT_PORTS[parts.scheme] if port is None else port,
        is_tls=parts.scheme == "https",
        base_path=base_path,
        model=model,
        api_key=api_key,
    )

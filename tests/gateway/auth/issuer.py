"""An identity provider for tests: keys of every kind, tokens good and forged, and its web page."""

import base64
import functools
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from steelyard.contract import VirtualClock
from steelyard.gateway.auth.config import JwtConfig
from steelyard.gateway.auth.key_cache import KeyCache
from steelyard.gateway.auth.key_set import KeySet, parse_key_set
from steelyard.gateway.auth.tokens import TokenVerifier
from steelyard.telemetry import Metrics

__all__ = [
    "AUDIENCE",
    "ISSUER",
    "NOW_S",
    "Issuer",
    "Provider",
    "World",
    "base64url",
    "claims",
    "jwt_config",
    "key",
    "provider",
]

ISSUER = "https://idp.test/"
AUDIENCE = "steelyard"
NOW_S = 1_800_000_000.0
"""Unix time at which virtual clocks begin."""


@functools.cache
def key(kind: str, number: int = 0) -> Key:
    """The same key for the same arguments, because RSA keys take a while to make."""
    if kind == "RSA":
        return RSAKey.generate_key(2048, private=True)
    if kind == "EC":
        return ECKey.generate_key("P-256", private=True)
    assert kind == "OKP"
    return OKPKey.generate_key("Ed25519", private=True)


ALGORITHMS = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}


def jwt_config(**changes: Any) -> JwtConfig:
    """What the door is told about the issuer."""
    defaults: dict[str, Any] = {
        "issuer": ISSUER,
        "audience": frozenset({AUDIENCE}),
        "jwks_url": "https://idp.test/keys",
    }
    return JwtConfig(**defaults | changes)


def claims(now_s: float = NOW_S, **changes: Any) -> dict[str, Any]:
    """Of a token that is good for five minutes; None takes a claim out."""
    usual = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "user-1",
        "jti": "token-1",
        "iat": now_s,
        "exp": now_s + 300,
        "tenant": "team-a",
        "scope": "llm:infer",
    }
    return {name: value for name, value in (usual | changes).items() if value is not None}


class _AnyAlgorithm(jws.JWSRegistry):
    """Signs with what it is told to."""

    def get_alg(self, name: str) -> Any:
        return self.algorithms[name]


class Issuer:
    """Signs with one key of each kind; their ids are their kinds in small letters."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self.suffix = f"-{number}" if number else ""

    def token(self, kind: str = "EC", header: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token, valid unless `header` or the changed claims make it otherwise."""
        return self.sign(claims(**changes), kind, header)

    def sign(
        self,
        payload: dict[str, Any] | bytes,
        kind: str = "EC",
        header: dict[str, Any] | None = None,
    ) -> str:
        """Sign anything. None in `header` takes a member out."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        usual = {"alg": ALGORITHMS[kind], "kid": kind.lower() + self.suffix, "typ": "at+jwt"}
        members = {k: v for k, v in (usual | (header or {})).items() if v is not None}
        registry = _AnyAlgorithm(strict_check_header=False)
        return jws.serialize_compact(members, body, key(kind, self._number), registry=registry)

    def forge(self, header: Any, payload: Any, signature: bytes = b"") -> str:
        """Put parts together without signing them."""
        parts = (json.dumps(header).encode(), json.dumps(payload).encode(), signature)
        return ".".join(map(base64url, parts))

    def hmac_forgery(self, secret: bytes, header: dict[str, Any] | None = None) -> str:
        """A token signed with a shared secret."""
        members = {"alg": "HS256", "typ": "at+jwt", "kid": "rsa"} | (header or {})
        parts = (json.dumps(members).encode(), json.dumps(claims()).encode())
        body = ".".join(map(base64url, parts))
        return f"{body}.{base64url(hmac.digest(secret, body.encode(), hashlib.sha256))}"

    def public(self, kind: str) -> dict[str, Any]:
        """A key as the key set shows it."""
        return {**key(kind, self._number).as_dict(private=False), "kid": kind.lower() + self.suffix}

    def key_set(self, *kinds: str) -> bytes:
        """The published keys; all when none is named."""
        return json.dumps({"keys": [self.public(k) for k in kinds or ALGORITHMS]}).encode()


class World:
    """A verifier and its key cache, on a virtual clock, before a provider that may be away."""

    def __init__(self, **changes: Any) -> None:
        self.clock = VirtualClock()
        self.metrics = Metrics(clock=self.clock)
        self.config = jwt_config(**changes)
        self.issuer = Issuer()
        self.answer: bytes | Exception = self.issuer.key_set()
        self.fetch_times: list[float] = []
        self.fetch_s = 0.0
        self.revoked: frozenset[tuple[str, str]] = frozenset()
        self.keys = KeyCache(
            self._fetch, config=self.config, clock=self.clock, meter=self.metrics.access
        )
        self.verifier = TokenVerifier(
            self.config,
            self.keys,
            revoked=lambda: self.revoked,
            unix_time=self.unix_time,
            clock=self.clock,
            require_model_grant=False,
        )

    def unix_time(self) -> float:
        return NOW_S + self.clock.now()

    def token(self, kind: str = "EC", **changes: Any) -> str:
        """Good now."""
        return self.issuer.sign(claims(self.unix_time(), **changes), kind)

    async def _fetch(self) -> KeySet:
        self.fetch_times.append(self.clock.now())
        await self.clock.sleep(self.fetch_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return parse_key_set(self.answer, self.config.algorithms)


class Provider:
    """The key set on a real port; what it answers can be changed."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self.body = Issuer().key_set()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.paths: list[str] = []
        self.delay = threading.Event()
        self.delay.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/keys"


@contextmanager
def provider() -> Iterator[Provider]:
    """Serve until the block ends."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            opened.paths.append(self.path)
            opened.delay.wait(10)
            self.send_response(opened.status)
            for name, value in opened.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(opened.body)))
            self.end_headers()
            self.wfile.write(opened.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    opened = Provider(server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield opened
    finally:
        opened.delay.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def base64url(data: bytes) -> str:
    """Without padding, as tokens have it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

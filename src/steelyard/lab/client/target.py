"""The server that is measured: its address, its dialect, and the bytes of a request to it.

Which extras a server understands is found out by `probe`.
"""

import re
import socket
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from steelyard.contract.errors import InvalidRequest

__all__ = ["Address", "Api", "Extras", "RequestWriter", "Target", "resolve"]

Api = Literal["chat", "completions"]
_PATHS: Mapping[str, str] = {"chat": "chat/completions", "completions": "completions"}
_FORBIDDEN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "content-type"})


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect."""

    host: str
    port: int
    path: str
    """Before `/v1`; often empty."""
    is_tls: bool
    resolved: str | None = None
    """The address of `host`, looked up once. None: with every connection."""

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.host_header}{self.path}"


class Extras(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters beyond OpenAI's oldest ones. Each is only sent where it is understood."""

    include_usage: bool = True
    """`stream_options.include_usage`: the server counts."""
    ignore_eos: bool = True
    """Answers have exactly the asked length."""
    return_token_ids: bool = False
    """Every event says which tokens it brings: exact even when several come at once."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and how to ask it."""

    url: str
    """With or without `/v1`."""
    model: str
    api: Api = "chat"
    is_streaming: bool = True
    extras: Extras = Extras()
    temperature: float = 0.0
    body: dict[str, Any] = msgspec.field(default_factory=dict)
    """More parameters, sent as they are; they win over all others."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Sent with every request; may hold secrets, so results never contain them."""

    @property
    def address(self) -> Address:
        """Raises `InvalidRequest` when the URL is none."""
        try:
            parts = urllib.parse.urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise InvalidRequest(f"{self.url!r}: {error}", param="url") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest(
                f"{self.url!r} is no address of a server",
                param="url",
                fix="write http://HOST:PORT or https://HOST",
            )
        if parts.username is not None or parts.query or parts.fragment:
            # They would not be sent, and the server's refusal would be a riddle.
            raise InvalidRequest(
                "the URL holds a user name, a query or a fragment",
                param="url",
                fix="write http://HOST:PORT; name the variable with the key with --api-key-env",
            )
        if re.fullmatch("[!-~]*", parts.path) is None:
            raise InvalidRequest(
                f"{self.url!r}: its path holds characters that must be written as %XX", param="url"
            )
        is_tls = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return Address(
            parts.hostname, (443 if is_tls else 80) if port is None else port, path, is_tls
        )


def resolve(address: Address) -> Address:
    """The address with its name looked up. Raises `InvalidRequest` when there is no such host."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter: a label that is empty or too long
        why = error.strerror if isinstance(error, OSError) else "no name of a host"
        raise InvalidRequest(f"{address.host}: {why}", param="url") from error
    first = str(found[0][4][0])
    return Address(address.host, address.port, address.path, address.is_tls, first)


class RequestWriter:
    """Bytes of requests. Immutable."""

    def __init__(self, target: Target) -> None:
        """Raises `InvalidRequest` when the URL or a header cannot be used."""
        self._target = target
        address = target.address
        fields = {"host": address.host_header, "accept": "text/event-stream, application/json"}
        for name, value in target.headers.items():
            if name.lower() in _FORBIDDEN_HEADERS or not (name + value).isprintable():
                raise InvalidRequest(f"the header {name!r} cannot be set", param="headers")
            fields[name.lower()] = value
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        path = f"{address.path}/v1/{_PATHS[target.api]}"
        self._head = (f"POST {path} HTTP/1.1\r\n{lines}content-type: application/json\r\n").encode(
            "latin-1", "replace"
        )
        self._fixed = self._fixed_parameters()

    def chat(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> bytes:
        """The JSON body of a conversation."""
        return self._body({"messages": messages}, max_tokens)

    def completion(self, prompt: str | Sequence[int], max_tokens: int) -> bytes:
        """The JSON body of a plain prompt: text or token ids."""
        return self._body({"prompt": prompt}, max_tokens)

    def request(self, body: bytes, request_id: str) -> bytes:
        """The whole request, ready for the socket."""
        return b"%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            self._head,
            request_id.encode(),
            len(body),
            body,
        )

    def _body(self, prompt: Mapping[str, Any], max_tokens: int) -> bytes:
        lengths: dict[str, int] = {"max_tokens": max_tokens}
        return msgspec.json.encode({**self._fixed, **prompt, **lengths, **self._target.body})

    def _fixed_parameters(self) -> dict[str, Any]:
        target, extras = self._target, self._target.extras
        fixed: dict[str, Any] = {
            "model": target.model,
            "stream": target.is_streaming,
            "temperature": target.temperature,
        }
        if target.is_streaming and extras.include_usage:
            fixed["stream_options"] = {"include_usage": True}
        if extras.ignore_eos:
            fixed["ignore_eos"] = True
        if extras.return_token_ids:
            fixed["return_token_ids"] = True
        return fixed

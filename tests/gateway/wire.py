"""Plain HTTP over plain sockets, so that nothing corrects what a test sends."""

import json
import socket
from dataclasses import dataclass
from typing import Any

from .doors import Door

__all__ = ["Reply", "connect", "events", "get", "post", "post_bytes", "read_reply", "request"]


@dataclass(frozen=True)
class Reply:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The OpenAI error object, checked for shape."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str) and error["message"], error
        assert isinstance(error["type"], str) and isinstance(error["code"], str), error
        assert error["param"] is None or isinstance(error["param"], str), error
        return error  # type: ignore[no-any-return]


def connect(door: Door, **options: int) -> socket.socket:
    """A connected socket that gives up after ten seconds."""
    sock = socket.socket()
    for name, value in options.items():
        sock.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    sock.settimeout(10)
    sock.connect((door.host, door.port))
    return sock


def request(path: str, body: bytes, *fields: str, method: str = "POST") -> bytes:
    """A well-formed request; `fields` replace the usual header fields of the same name."""
    usual = {"host": "test", "content-type": "application/json", "content-length": str(len(body))}
    given = {line.partition(":")[0].strip().lower(): line for line in fields}
    lines = [f"{name}: {value}" for name, value in usual.items() if name not in given]
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, *given.values()])
    return head.encode("latin-1") + b"\r\n\r\n" + body


def read_reply(
    sock: socket.socket, rest: bytearray | None = None, head_only: bool = False
) -> Reply:
    """The next answer; `rest` keeps bytes that belong to the one after it."""
    data = rest if rest is not None else bytearray()
    while b"\r\n\r\n" not in data:
        _more(sock, data)
    head, _, tail = bytes(data).partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    data[:] = tail
    status = int(status_line.split(" ")[1])
    if head_only or status in (100, 204, 304):
        return Reply(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        return Reply(status, headers, _read_chunks(sock, data))
    if "content-length" in headers:
        length = int(headers["content-length"])
        while len(data) < length:
            _more(sock, data)
        body = bytes(data[:length])
        del data[:length]
        return Reply(status, headers, body)
    while True:
        try:
            _more(sock, data)
        except ConnectionError:
            return Reply(status, headers, bytes(data))


def post_bytes(door: Door, path: str, body: bytes, *fields: str) -> Reply:
    """POST `body` on a fresh connection."""
    with connect(door) as sock:
        sock.sendall(request(path, body, *fields))
        return read_reply(sock)


def post(door: Door, path: str, value: Any, *fields: str) -> Reply:
    """POST `value` as JSON."""
    return post_bytes(door, path, json.dumps(value).encode(), *fields)


def get(door: Door, path: str, *fields: str, method: str = "GET") -> Reply:
    """GET `path`."""
    with connect(door) as sock:
        sock.sendall(request(path, b"", *fields, method=method))
        return read_reply(sock, head_only=method == "HEAD")


def events(body: bytes) -> list[Any]:
    """The events of an SSE body, JSON ones decoded, comments left out."""
    found: list[Any] = []
    for block in body.decode().split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
    return found


def _read_chunks(sock: socket.socket, data: bytearray) -> bytes:
    body = bytearray()
    while True:
        while b"\r\n" not in data:
            _more(sock, data)
        size_line, _, tail = bytes(data).partition(b"\r\n")
        size = int(size_line, 16)
        data[:] = tail
        while len(data) < size + 2:
            _more(sock, data)
        body += data[:size]
        assert data[size : size + 2] == b"\r\n"
        del data[: size + 2]
        if size == 0:
            return bytes(body)


def _more(sock: socket.socket, data: bytearray) -> None:
    part = sock.recv(65536)
    if not part:
        raise ConnectionError(f"closed after {bytes(data)!r}")
    data += part

"""An HTTP server that serves bytes from memory, with the faults that networks have."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FaultyServer:
    """What is served and how; tests change it while the server runs."""

    files: dict[str, bytes] = field(default_factory=dict)
    content_types: dict[str, str] = field(default_factory=dict)
    url: str = ""
    cut_after: list[int] = field(default_factory=list)
    """Each response takes the next one: the connection breaks after so many bytes."""
    honours_range: bool = True
    statuses: list[int] = field(default_factory=list)
    """Each request takes the next one instead of being served."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range of every GET."""
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    """Further headers, by path."""


@contextmanager
def faulty_server() -> Iterator[FaultyServer]:
    """Serve until the block ends."""
    state = FaultyServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            state.requests.append((self.path, self.headers.get("Range")))
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            path = self.path.partition("?")[0]
            if state.statuses and with_body:
                self.send_error(state.statuses.pop(0))
                return
            if path not in state.files:
                self.send_error(404)
                return
            self._serve(state.files[path], state.content_types.get(path), with_body)

        def _serve(self, body: bytes, content_type: str | None, with_body: bool) -> None:
            start, total = 0, len(body)
            wanted = self.headers.get("Range")
            if wanted and state.honours_range:
                start = int(wanted.removeprefix("bytes=").partition("-")[0])
                if start >= total:
                    self.send_error(416)
                    return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            self.send_header("Content-Length", str(total - start))
            self.send_header("Content-Type", content_type or "application/octet-stream")
            self.send_header("ETag", f'"{hash(body) & 0xFFFFFFFF:x}"')
            for name, value in state.headers.get(self.path.partition("?")[0], {}).items():
                self.send_header(name, value)
            self.end_headers()
            if not with_body:
                return
            piece = body[start:]
            if state.cut_after:
                piece = piece[: state.cut_after.pop(0)]
                self.close_connection = True
            self.wfile.write(piece)
            self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

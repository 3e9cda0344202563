"""Clients of a real door: many streams at once, and what each of them has seen."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any

__all__ = ["Answer", "Crowd"]


@dataclass
class Answer:
    """One streamed completion as its client saw it."""

    prompt: str
    pieces: list[str] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    usage: Any = None
    finish_reason: str | None = None
    error: Any = None
    is_done: bool = False
    """It ended with `[DONE]`."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def largest_gap_s(self) -> float:
        pairs = zip(self.times_s, self.times_s[1:], strict=False)
        return max((later - earlier for earlier, later in pairs), default=0.0)

    @property
    def outcome(self) -> tuple[str, Any, str | None]:
        """What must not depend on what happens to replicas."""
        assert self.error is None and self.is_done, self.error
        return self.text, self.usage, self.finish_reason


class Crowd:
    """Streams that begin together, one thread each."""

    def __init__(self, port: int, prompts: Sequence[str], **fields: Any) -> None:
        self.answers = [Answer(prompt) for prompt in prompts]
        self._port = port
        self._fields = {"temperature": 0, "ignore_eos": True, "stream": True, **fields}
        self._threads = [
            threading.Thread(target=self._ask, args=(answer,), daemon=True)
            for answer in self.answers
        ]
        for thread in self._threads:
            thread.start()

    def wait_streaming(self, *, events: int = 3, limit_s: float = 60.0) -> None:
        """Return once every stream has brought so many events."""
        end_s = time.monotonic() + limit_s
        while any(len(answer.times_s) < events for answer in self.answers):
            assert time.monotonic() < end_s, "streams do not begin"
            time.sleep(0.01)

    def wait(self, *, limit_s: float = 120.0) -> list[Answer]:
        """What all have seen, once they have ended."""
        end_s = time.monotonic() + limit_s
        for thread in self._threads:
            thread.join(max(end_s - time.monotonic(), 0.0))
            assert not thread.is_alive(), "a stream does not end"
        return self.answers

    def _ask(self, answer: Answer) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=120)
        options = {"stream_options": {"include_usage": True}}
        body = {**self._fields, **options, "prompt": answer.prompt}
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            for line in connection.getresponse():
                if line.startswith(b"data: "):
                    _note(answer, line.removeprefix(b"data: ").strip())
        finally:
            connection.close()


def _note(answer: Answer, data: bytes) -> None:
    if data == b"[DONE]":
        answer.is_done = True
        return
    event = json.loads(data)
    answer.error = event.get("error") or answer.error
    answer.usage = event.get("usage") or answer.usage
    for choice in event.get("choices", ()):
        answer.times_s.append(time.monotonic())
        answer.pieces.append(choice["text"])
        answer.finish_reason = choice["finish_reason"] or answer.finish_reason

"""The program's log: text for people or one JSON object per line, without secrets.

Sets up the standard library's logging once, at the process edge; every module logs through
`logging.getLogger(__name__)` as usual. Not the request log of prompts and answers: texts of users
are never logged.
"""

import contextlib
import contextvars
import datetime
import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any, Literal, TextIO

__all__ = ["configure_logging", "redacted", "request_context"]

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="")


def configure_logging(
    format: LogFormat = "text",  # noqa: A002 — named like the setting
    level: LogLevel = "info",
    *,
    stream: TextIO | None = None,
) -> None:
    """Send all logging of this process to `stream` in one format.

    None means standard error, whatever stands for it at the moment: a progress bar may have put
    itself in between, so that lines do not run into it.

    Replaces what was set up before, so calling it again is safe.
    """
    handler = _CurrentStderr() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter() if format == "json" else _TextFormatter())
    root = logging.getLogger()
    for former in root.handlers[:]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # aiohttp's access log repeats what the metrics count, once per request.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)


@contextlib.contextmanager
def request_context(request_id: str) -> Iterator[None]:
    """Everything logged inside, also by tasks started there, carries `request_id`."""
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)


def redacted(text: str) -> str:
    """`text` with everything that looks like a credential replaced."""
    for pattern in _SECRETS:
        text = pattern.sub(r"\g<1>[redacted]", text)
    return text


_SECRETS = (
    re.compile(r"(?i)(\bauthorization\b[\"']?\s*[:=]\s*)[^\r\n,;}\])]+"),
    re.compile(r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(
        r"(?i)(\b(?:[a-z_-]*(?:api[_-]?key|password|passwd|secret|access_token|hf_token))"
        r"[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&}]+"
    ),
    re.compile(r"(\b(?:sk|hf|ghp|pk)[-_])[A-Za-z0-9_-]{8,}"),
    re.compile(r"(://)[^/\s@]+(?=@)"),
)


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Looks standard error up for every line."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _TextFormatter(logging.Formatter):
    """`12:30:05.123 warning steelyard.fleet: engine 0 died [request-id]`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        request_id = _request_id.get()
        suffix = f" [{_one_line(request_id)}]" if request_id else ""
        message = _one_line(redacted(record.getMessage()))
        line = f"{time} {record.levelname.lower()} {record.name}: {message}{suffix}"
        trace = self._trace(record)
        return f"{line}\n{trace}" if trace else line

    def _trace(self, record: logging.LogRecord) -> str:
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        return redacted(trace)


class _JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message; request_id and exception if any."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if request_id := _request_id.get():
            entry["request_id"] = request_id
        if record.exc_info:
            entry["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(entry)


def _one_line(text: str) -> str:
    """Control characters escaped, so that a client's text can forge neither lines nor colours."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

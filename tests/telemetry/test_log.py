"""The log is one line per event, carries request ids, and never holds a credential."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from steelyard.telemetry import configure_logging, request_context
from steelyard.telemetry.logging import redacted

_LOG = logging.getLogger("steelyard.test")


@pytest.fixture(autouse=True)
def _restored_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def test_text_lines_say_level_logger_message_and_request(stream: io.StringIO) -> None:
    configure_logging("text", stream=stream)
    with request_context("req-1"):
        _LOG.warning("engine %s died", 0)
    _LOG.info("back")
    first, second = stream.getvalue().splitlines()
    assert first[12:] == " warning steelyard.test: engine 0 died [req-1]"
    assert second[12:] == " info steelyard.test: back"


def test_json_lines_are_objects_with_a_request_id(stream: io.StringIO) -> None:
    configure_logging("json", stream=stream)
    with request_context("req-1"):
        _LOG.warning("line one\nline two")
    entry = json.loads(stream.getvalue())
    assert entry["time"].endswith("Z")
    del entry["time"]
    assert entry == {
        "level": "warning",
        "logger": "steelyard.test",
        "message": "line one\nline two",
        "request_id": "req-1",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_exceptions_are_logged_without_their_secrets(form: str, stream: io.StringIO) -> None:
    configure_logging(form, stream=stream)  # type: ignore[arg-type]
    try:
        raise ValueError("Authorization: Bearer abcdefgh12345678")
    except ValueError:
        _LOG.exception("failed")
    text = stream.getvalue()
    assert "ValueError" in text
    assert "abcdefgh12345678" not in text
    if form == "json":
        assert "ValueError" in json.loads(text)["exception"]


def test_less_severe_events_are_left_out(stream: io.StringIO) -> None:
    configure_logging("text", "error", stream=stream)
    _LOG.warning("no")
    _LOG.error("yes")
    assert "no" not in stream.getvalue().replace("yes", "")
    assert len(stream.getvalue().splitlines()) == 1


def test_setting_up_twice_does_not_write_twice(stream: io.StringIO) -> None:
    configure_logging("text", stream=io.StringIO())
    configure_logging("text", stream=stream)
    _LOG.info("once")
    assert len(stream.getvalue().splitlines()) == 1


def test_a_clients_text_can_forge_neither_lines_nor_colours(stream: io.StringIO) -> None:
    configure_logging("text", stream=stream)
    with request_context("a\n12:00:00 error forged"):
        _LOG.info("model %s", "x\n00:00:00.000 error steelyard: forged \x1b[31m\r\u2028")
    text = stream.getvalue()
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer SECRET-12345678",
        "{'Authorization': 'Bearer SECRET-12345678'}",
        '{"authorization": "Basic SECRET-12345678"}',
        "headers: authorization=SECRET-12345678",
        "bearer SECRET-12345678 was refused",
        "api_key=SECRET-12345678&x=1",
        "OPENAI_API_KEY: SECRET-12345678",
        "password = 'SECRET-12345678'",
        "hf_token=SECRET-12345678",
        "key sk-SECRET-12345678",
        "GET https://user:SECRET-12345678@example.org/x",
    ],
)
def test_credentials_never_reach_the_log(text: str) -> None:
    cleaned = redacted(text)
    assert "SECRET-12345678" not in cleaned
    assert "[redacted]" in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "produced 12 tokens in 3 steps (max_tokens=128)",
        "GET http://127.0.0.1:8000/v1/models",
        "basic auth is off",
        "sk-1",
        "the bearer of news",
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


async def test_tasks_started_for_a_request_carry_its_id(stream: io.StringIO) -> None:
    configure_logging("json", stream=stream)

    async def work() -> None:
        await asyncio.sleep(0)
        _LOG.info("working")

    with request_context("req-1"):
        task = asyncio.create_task(work())
    with request_context("req-2"):
        await task
        _LOG.info("done")
    ids = [json.loads(line)["request_id"] for line in stream.getvalue().splitlines()]
    assert ids == ["req-1", "req-2"]

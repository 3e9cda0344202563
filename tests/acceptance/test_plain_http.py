"""What curl and other plain clients see."""

import json
import shutil
import socket
import subprocess
import time

import pytest

from tests.gateway.bad_requests import ROWS, BadRequest
from tests.gateway.wire import connect, read_reply

from .conftest import MODEL, Service

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


@needs_curl
def test_the_line_of_the_banner_works(service: Service) -> None:
    lines = service.stderr.splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.startswith("  try "))
    command = "\n".join([lines[at].strip().removeprefix("try").strip(), lines[at + 1]])
    done = subprocess.run(
        ["sh", "-c", command.replace("}]}", '}], "max_tokens": 5}')],
        capture_output=True,
        timeout=60,
    )
    answer = json.loads(done.stdout)
    assert answer["choices"][0]["message"]["content"]


@needs_curl
def test_curl_sees_a_stream_event_by_event(service: Service) -> None:
    body = {"model": MODEL, "prompt": "Once", "max_tokens": 3, "stream": True}
    done = subprocess.run(
        ["curl", "-sN", f"{service.url}/v1/completions", "--json", json.dumps(body)],
        capture_output=True,
        timeout=60,
        text=True,
    )
    events = done.stdout.strip().split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"


def test_tokens_become_text_again(service: Service) -> None:
    text = "Grüße, 世界! 🧪"
    _, there = service.ask("/tokenize", {"model": MODEL, "prompt": text})
    assert there["count"] == len(there["tokens"])
    assert service.ask("/detokenize", {"model": MODEL, "tokens": there["tokens"]}) == (
        200,
        {"prompt": text},
    )


@pytest.mark.parametrize("path", ["/health", "/readiness", "/version", "/v1/models", "/metrics"])
def test_it_tells_about_itself(service: Service, path: str) -> None:
    status, body = service.ask(path)
    assert status == 200 and body


def test_hostile_requests_are_refused_and_hurt_nobody(service: Service) -> None:
    engine = service.engine_pid
    wrong = {row.name: trouble for row in ROWS if (trouble := trouble_with(service, row))}
    assert not wrong
    assert len(ROWS) >= 60
    assert service.engine_pid == engine
    assert service.is_ready()


def trouble_with(service: Service, row: BadRequest) -> str:
    """What is wrong with the answer to `row`; empty when nothing is."""
    sent = row.sent.replace(b'"fake"', f'"{MODEL}"'.encode())
    fastest_s = 1e9
    for _ in range(5):  # the fastest counts: other programs share this machine
        with connect(service) as sock:
            sock.sendall(sent)
            if row.ends_input:
                sock.shutdown(socket.SHUT_WR)
            sent_s = time.perf_counter()
            reply = read_reply(sock)
            fastest_s = min(fastest_s, time.perf_counter() - sent_s)
        seen = (reply.status, reply.error["code"], reply.error["param"])
        if seen != (row.status, row.code, row.param):
            return f"answered with {seen}: {reply.error['message']}"
        if fastest_s <= 0.05:
            return ""
    return f"took {fastest_s:.3f} s"


@pytest.mark.slow
def test_a_header_at_a_byte_per_second_is_cut_off_within_ten_seconds(service: Service) -> None:
    started_s = time.monotonic()
    with connect(service) as sock:
        sock.settimeout(1.0)
        for byte in b"GET /health HTTP/1.1\r\nhost: x":
            sock.sendall(bytes([byte]))
            try:
                answer = sock.recv(65_536)
            except TimeoutError:
                continue
            assert answer.startswith(b"HTTP/1.1 408 ")
            break
    assert 9 < time.monotonic() - started_s < 11.5

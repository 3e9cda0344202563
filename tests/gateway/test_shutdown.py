"""The door's end: running requests finish, or are told why they do not."""

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from steelyard.backends.fake import FakeEngine
from steelyard.contract.errors import SettingsError
from steelyard.gateway.app import build_gateway
from steelyard.gateway.config import GatewayConfig, HttpLimits
from steelyard.gateway.models import ServedModel

from .byte_text import ByteText
from .conftest import OpenDoor
from .doors import Door, open_door
from .wire import connect, events, get, read_reply, request

CHAT = "/v1/chat/completions"
ASK = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 20}


def ask(**changes: object) -> bytes:
    return request(CHAT, json.dumps(ASK | changes).encode())


def shut_down(door: Door) -> threading.Thread:
    """Begin to shut the door; the thread ends with the door's shutdown."""
    thread = threading.Thread(target=door.run, args=(door.gateway.shutdown(),))
    thread.start()
    return thread


def is_accepting(door: Door) -> bool:
    try:
        connect(door).close()
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize("streaming", [False, True])
def test_a_running_request_finishes_while_nobody_new_is_let_in(
    make_door: OpenDoor, streaming: bool
) -> None:
    door = make_door(itl_s=0.02)
    with connect(door) as running, connect(door) as idle:
        idle.sendall(request("/health", b"", method="GET"))
        assert read_reply(idle).status == 200
        running.sendall(ask(stream=streaming))
        door.wait_for(lambda: door.run(door.engine.status()).produced_tokens_total > 2)
        ending = shut_down(door)
        assert idle.recv(1) == b"", "idle connections are closed"
        door.wait_for(lambda: not is_accepting(door))
        reply = read_reply(running)
        assert reply.status == 200
        if streaming:
            assert events(reply.body)[-1] == "[DONE]"
        else:
            assert reply.json["usage"]["completion_tokens"] == 20
            assert reply.headers["connection"] == "close"
        answered_s = time.monotonic()
        assert running.recv(1) == b""
        ending.join(10)
        assert time.monotonic() - answered_s < 0.5, "nothing is left to wait for"


def test_an_answer_that_is_still_on_its_way_is_not_cut(make_door: OpenDoor) -> None:
    http = HttpLimits(write_buffer_bytes=1_000_000)
    door = make_door(GatewayConfig(port=0, http=http))
    with connect(door, SO_RCVBUF=4096) as sock:
        sock.sendall(ask(max_tokens=500, logprobs=True, top_logprobs=20))
        door.wait_for(lambda: door.run(door.engine.status()).finished_total == 1)
        ending = shut_down(door)
        assert read_reply(sock).json["usage"]["completion_tokens"] == 500
        ending.join(10)


def test_requests_that_do_not_finish_in_time_are_told_so(make_door: OpenDoor) -> None:
    door = make_door(GatewayConfig(port=0, shutdown_grace_s=0.2), itl_s=0.02)
    with connect(door) as stream, connect(door) as whole:
        stream.sendall(ask(stream=True, max_tokens=3000))
        whole.sendall(ask(max_tokens=3000))
        door.wait_for(lambda: door.run(door.engine.status()).running == 2)
        door.wait_for(lambda: door.run(door.engine.status()).produced_tokens_total > 4)
        ending = shut_down(door)
        error = events(read_reply(stream).body)[-1]["error"]
        assert error["code"] == "shutting_down"
        reply = read_reply(whole)
        assert (reply.status, reply.error["code"]) == (503, "shutting_down")
        assert reply.headers["retry-after"] == "1"
        assert reply.headers["connection"] == "close"
        ending.join(10)
    assert len(door.engine.recent_aborts) == 2
    cancelled = 'steelyard_requests_ended_total{model="fake",outcome="cancelled",reason="shutdown"}'
    assert door.metric(cancelled) == 2


async def test_a_port_in_use_is_named() -> None:
    model = ServedModel("fake", FakeEngine(), ByteText(), 0)
    with open_door() as door:
        gateway = build_gateway(GatewayConfig(port=door.port), [model])
        with pytest.raises(SettingsError) as refused:
            await gateway.startup()
    assert refused.value.param == "gateway.port"
    assert "in use" in refused.value.message


def test_two_workers_can_share_a_port() -> None:
    with open_door(GatewayConfig(port=0, reuse_port=True)) as first:
        with open_door(GatewayConfig(port=first.port, reuse_port=True)) as second:
            assert second.port == first.port
            assert get(first, "/health").status == 200
        assert get(first, "/health").status == 200


SERVE = """
import asyncio, sys
from steelyard.backends.fake import FakeEngine
from steelyard.gateway.app import build_gateway, serve
from steelyard.gateway.config import GatewayConfig, HttpLimits
from steelyard.gateway.models import ServedModel
from tests.gateway.byte_text import ByteText, VOCAB_SIZE
from tests.gateway.doors import engine_config

async def main():
    engine = FakeEngine(engine_config(itl_s=0.02))
    model = ServedModel("fake", engine, ByteText(), 0)
    gateway = build_gateway(GatewayConfig(port=0, shutdown_grace_s=20.0), [model])
    await serve(gateway, lambda host, port: print(port, flush=True))

asyncio.run(main())
"""


@pytest.fixture
def process():
    """A process that serves; its first line of output is its port."""
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE], cwd=root, stdout=subprocess.PIPE, text=True
    )
    yield child
    child.kill()
    child.wait(10)
    assert child.stdout is not None
    child.stdout.close()


class Remote:
    """Enough of a `Door` to connect to another process."""

    host = "127.0.0.1"

    def __init__(self, child: subprocess.Popen) -> None:
        assert child.stdout is not None
        self.port = int(child.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish(process: subprocess.Popen, number: int) -> None:
    with connect(Remote(process)) as sock:
        sock.sendall(ask(stream=True))
        first = bytearray(sock.recv(65536))
        process.send_signal(number)
        assert events(read_reply(sock, first).body)[-1] == "[DONE]"
    assert process.wait(10) == 0


def test_a_second_signal_does_not_wait(process: subprocess.Popen) -> None:
    with connect(Remote(process)) as sock:
        sock.sendall(ask(stream=True, max_tokens=2000))
        first = bytearray(sock.recv(65536))
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert events(read_reply(sock, first).body)[-1]["error"]["code"] == "shutting_down"
    assert process.wait(10) == 0

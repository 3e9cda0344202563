"""What a connection may do, and for how long: seen from raw sockets."""

import json
import socket
import time

import pytest

from steelyard.gateway.config import GatewayConfig, HttpLimits

from .conftest import OpenDoor
from .doors import Door
from .wire import connect, get, post, post_bytes, read_reply, request

CHAT = "/v1/chat/completions"
ASK = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
BODY = json.dumps(ASK).encode()


def limits(**changes: float) -> GatewayConfig:
    return GatewayConfig(port=0, http=HttpLimits(**changes))  # type: ignore[arg-type]


def closed_after_s(sock: socket.socket) -> float:
    """How long until the other side closes."""
    start_s = time.monotonic()
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - start_s


def drip(sock: socket.socket, data: bytes, every_s: float) -> bytes:
    """Send byte by byte until an answer comes or the connection ends; what came."""
    sock.settimeout(every_s)
    for byte in data:
        try:
            sock.sendall(bytes([byte]))
            came = sock.recv(65536)
        except TimeoutError:
            continue
        except ConnectionError:
            return b""
        return came
    raise AssertionError("the door has endless patience")


def test_a_connection_serves_many_requests(door: Door) -> None:
    with connect(door) as sock:
        rest = bytearray()
        for _ in range(3):
            sock.sendall(request(CHAT, BODY))
            reply = read_reply(sock, rest)
            assert reply.status == 200
            assert "connection" not in reply.headers
    door.wait_for(lambda: door.metric('steelyard_connections_closed_total{reason="client"}') == 1)


def test_two_requests_in_one_packet_get_two_answers_in_order(door: Door) -> None:
    with connect(door) as sock:
        named = [request(CHAT, BODY, f"x-request-id: number-{i}") for i in range(5)]
        sock.sendall(b"".join(named))
        rest = bytearray()
        ids = [read_reply(sock, rest).headers["x-request-id"] for _ in range(5)]
        assert ids == [f"number-{i}" for i in range(5)]


def test_a_request_behind_a_bad_one_is_still_answered(door: Door) -> None:
    with connect(door) as sock:
        sock.sendall(request(CHAT, b"[]") + request(CHAT, BODY))
        rest = bytearray()
        assert [read_reply(sock, rest).status for _ in range(2)] == [400, 200]


def test_an_offer_to_speak_another_protocol_is_ignored(door: Door) -> None:
    for offer in ("upgrade: websocket", "upgrade: h2c"):
        with connect(door) as sock:
            rest = bytearray()
            for _ in range(2):
                sock.sendall(request(CHAT, BODY, "connection: upgrade", offer))
                assert read_reply(sock, rest).status == 200


def test_a_body_may_come_in_chunks(door: Door) -> None:
    head = request(CHAT, b"", "content-length:", "transfer-encoding: chunked")
    head = head.replace(b"content-length:\r\n", b"")
    with connect(door) as sock:
        sock.sendall(head)
        for at in range(0, len(BODY), 20):
            part = BODY[at : at + 20]
            sock.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        sock.sendall(b"0\r\n\r\n")
        assert read_reply(sock).status == 200


def test_a_request_may_come_byte_by_byte(door: Door) -> None:
    with connect(door) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request(CHAT, BODY):
            sock.sendall(bytes([byte]))
        assert read_reply(sock).status == 200


def test_expect_100_continue_is_honoured(door: Door) -> None:
    with connect(door) as sock:
        whole = request(CHAT, BODY, "expect: 100-continue")
        head, body = whole[: -len(BODY)], BODY
        sock.sendall(head)
        rest = bytearray()
        assert read_reply(sock, rest).status == 100
        sock.sendall(body)
        assert read_reply(sock, rest).status == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(door: Door) -> None:
    with connect(door) as sock:
        fields = ("expect: 100-continue", f"content-length: {1 << 30}")
        sock.sendall(request(CHAT, b"", *fields))
        reply = read_reply(sock)
        assert (reply.status, reply.error["code"]) == (413, "payload_too_large")
        assert closed_after_s(sock) < 3


def test_a_chunked_body_that_grows_too_large_is_refused_on_the_way(make_door: OpenDoor) -> None:
    door = make_door(limits(max_body_bytes=10_000))
    head = request(CHAT, b"", "content-length:", "transfer-encoding: chunked")
    with connect(door) as sock:
        sock.sendall(head.replace(b"content-length:\r\n", b"") + b"fff\r\n" + b" " * 4095 + b"\r\n")
        sock.sendall((b"fff\r\n" + b" " * 4095 + b"\r\n") * 3)
        assert read_reply(sock).status == 413


def test_a_body_of_exactly_the_limit_is_taken(make_door: OpenDoor) -> None:
    door = make_door(limits(max_body_bytes=2000))
    assert post_bytes(door, CHAT, BODY.ljust(2000)).status == 200
    assert post_bytes(door, CHAT, BODY.ljust(2001)).status == 413


def test_http_1_0_is_answered_and_closed(door: Door) -> None:
    for stream in (False, True):
        body = json.dumps(ASK | {"stream": stream}).encode()
        with connect(door) as sock:
            sock.sendall(request(CHAT, body).replace(b"HTTP/1.1", b"HTTP/1.0"))
            reply = read_reply(sock)
            assert reply.status == 200
            assert reply.headers["connection"] == "close"
            assert "transfer-encoding" not in reply.headers
            assert reply.body.endswith(b"[DONE]\n\n") if stream else reply.json["id"]


def test_connection_close_is_honoured(door: Door) -> None:
    with connect(door) as sock:
        sock.sendall(request(CHAT, BODY, "connection: close"))
        assert read_reply(sock).headers["connection"] == "close"
        assert sock.recv(1) == b""


def test_head_and_options_are_answered_without_a_body(door: Door) -> None:
    head = get(door, "/health", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(get(door, "/health").body))
    options = get(door, CHAT, method="OPTIONS")
    assert (options.status, options.headers["allow"]) == (204, "OPTIONS, POST")


def test_a_header_at_one_byte_per_interval_is_cut_off(make_door: OpenDoor) -> None:
    door = make_door(limits(header_timeout_s=0.3))
    with connect(door) as sock:
        start_s = time.monotonic()
        came = drip(sock, b"GET /health HTTP/1.1\r\nhost: " + b"x" * 1000, every_s=0.02)
        assert time.monotonic() - start_s < 1.0
        assert came.startswith(b"HTTP/1.1 408 ")
        sock.settimeout(10)
        assert closed_after_s(sock) < 2.5
    reason = 'steelyard_connections_closed_total{reason="header_timeout"}'
    door.wait_for(lambda: door.metric(reason) == 1)


def test_a_later_header_on_a_connection_has_the_same_deadline(make_door: OpenDoor) -> None:
    door = make_door(limits(header_timeout_s=0.3))
    with connect(door) as sock:
        sock.sendall(request(CHAT, BODY))
        assert read_reply(sock).status == 200
        came = drip(sock, b"GET /health HTTP/1.1\r\nhost: " + b"x" * 1000, every_s=0.02)
        assert came.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_never_speaks_is_closed(make_door: OpenDoor) -> None:
    door = make_door(limits(header_timeout_s=0.2))
    with connect(door) as sock:
        assert closed_after_s(sock) < 1.5


def test_an_idle_connection_is_closed(make_door: OpenDoor) -> None:
    door = make_door(limits(idle_timeout_s=0.2))
    with connect(door) as sock:
        sock.sendall(request(CHAT, BODY))
        assert read_reply(sock).status == 200
        assert closed_after_s(sock) < 1.5
    reason = 'steelyard_connections_closed_total{reason="idle_timeout"}'
    door.wait_for(lambda: door.metric(reason) == 1)


def test_a_body_at_one_byte_per_interval_is_cut_off(make_door: OpenDoor) -> None:
    door = make_door(limits(body_timeout_s=0.3))
    with connect(door) as sock:
        sock.sendall(request(CHAT, b"", f"content-length: {len(BODY)}"))
        start_s = time.monotonic()
        came = drip(sock, BODY, every_s=0.02)
        assert time.monotonic() - start_s < 1.0
        assert came.startswith(b"HTTP/1.1 408 ")
        sock.settimeout(10)
        assert closed_after_s(sock) < 2.5


@pytest.mark.parametrize("part", [b"a: b\r\n", b"long" * 1000])
def test_an_endless_header_is_refused_early(door: Door, part: bytes) -> None:
    sent = 0
    with connect(door) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n")
        try:
            while sent < 64 << 20:
                sock.sendall(part)
                sent += len(part)
        except ConnectionError:
            pass
    assert sent < 32 << 20  # most of it swallowed by the kernel's buffers
    assert get(door, "/health").status == 200


def test_a_large_header_that_is_legal_by_line_is_refused_by_size(make_door: OpenDoor) -> None:
    door = make_door(limits(max_header_bytes=4096))
    with connect(door) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n")
        for number in range(10):
            sock.sendall(b"field-%d: %b\r\n" % (number, b"x" * 1000))
            time.sleep(0.01)
        assert read_reply(sock).status == 431


def test_a_client_that_does_not_read_is_disconnected(make_door: OpenDoor) -> None:
    door = make_door(
        limits(write_timeout_s=0.3, write_buffer_bytes=16_384),
        context_tokens=200_000,
        tokens_per_chunk=16,
    )
    with connect(door, SO_RCVBUF=4096) as sock:
        body = json.dumps(ASK | {"stream": True, "max_tokens": 100_000}).encode()
        sock.sendall(request(CHAT, body))
        door.wait_for(lambda: len(door.engine.recent_aborts) == 1)
        produced = door.run(door.engine.status()).produced_tokens_total
        assert produced < 50_000, "the engine ran on although nobody read"
    reason = 'steelyard_connections_closed_total{reason="write_timeout"}'
    door.wait_for(lambda: door.metric(reason) == 1)
    assert post(door, CHAT, ASK).status == 200


def test_a_client_that_does_not_read_the_last_answer_is_not_kept(make_door: OpenDoor) -> None:
    # Larger than what the kernel takes, but not by a whole write buffer: nobody waits for it.
    door = make_door(limits(write_timeout_s=0.3, write_buffer_bytes=500_000))
    bulky = {"max_tokens": 300, "logprobs": True, "top_logprobs": 20}
    with connect(door, SO_RCVBUF=4096) as sock:
        body = json.dumps(ASK | bulky).encode()
        sock.sendall(request(CHAT, body, "connection: close"))
        door.wait_for(lambda: door.run(door.engine.status()).finished_total == 1)
        door.wait_for(lambda: door.metric("steelyard_connections") == 0)


def test_a_slow_but_steady_reader_gets_everything(make_door: OpenDoor) -> None:
    door = make_door(limits(write_timeout_s=1.0, write_buffer_bytes=4096), context_tokens=100_000)
    with connect(door, SO_RCVBUF=4096) as sock:
        body = json.dumps(ASK | {"stream": True, "max_tokens": 2000}).encode()
        sock.sendall(request(CHAT, body, "connection: close"))
        received = bytearray()
        while part := sock.recv(16_384):
            received += part
            time.sleep(0.001)
    assert received.count(b'"content":"') == 2001
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_one_connection_too_many_is_told_so(make_door: OpenDoor) -> None:
    door = make_door(limits(max_connections=2))
    with connect(door) as first, connect(door) as second:
        for sock in (first, second):
            sock.sendall(request(CHAT, BODY))
            assert read_reply(sock).status == 200
        with connect(door) as third:
            third.sendall(request(CHAT, BODY))
            reply = read_reply(third)
            assert (reply.status, reply.error["code"]) == (503, "too_many_connections")
            assert reply.headers["retry-after"] == "1"
            assert third.recv(1) == b""
    door.wait_for(lambda: door.metric("steelyard_connections") == 0)
    assert get(door, "/health").status == 200


def test_hundreds_of_slow_clients_do_not_disturb_the_others(make_door: OpenDoor) -> None:
    door = make_door(limits(header_timeout_s=30.0))
    sockets = [connect(door) for _ in range(300)]
    try:
        for sock in sockets:
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        start_s = time.monotonic()
        for _ in range(10):
            assert post(door, CHAT, ASK).status == 200
        assert time.monotonic() - start_s < 2.0
    finally:
        for sock in sockets:
            sock.close()


def test_small_answers_are_not_delayed_by_nagle(door: Door) -> None:
    with connect(door) as sock:
        start_s = time.monotonic()
        rest = bytearray()
        for _ in range(20):
            sock.sendall(request(CHAT, json.dumps(ASK | {"stream": True}).encode()))
            assert read_reply(sock, rest).status == 200
        assert time.monotonic() - start_s < 20 * 0.04  # a delayed acknowledgement is 40 ms


@pytest.mark.slow
def test_by_default_a_header_at_a_byte_per_second_lasts_ten_seconds(door: Door) -> None:
    with connect(door) as sock:
        start_s = time.monotonic()
        came = drip(sock, b"GET /health HTTP/1.1\r\nhost: " + b"x" * 100, every_s=1.0)
        assert time.monotonic() - start_s <= 11.0
        assert came.startswith(b"HTTP/1.1 408 ")

"""The engine's side of the wire, over real sockets in one process."""

import contextlib
import socket
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.contract import TokenChunk
from steelyard.contract.address import TcpAddress, UnixAddress, parse_address
from steelyard.contract.codec import MAX_FRAME_BYTES, encode_frame, event_decoder
from steelyard.contract.errors import SettingsError
from steelyard.contract.wire import Abort, Chunks, Command, Event, Progress, StatusQuery
from steelyard.engine.listener import Listener
from steelyard.engine.transport import WAKEUP, Happening, Notice, Transport, TransportLimits


class Harness:
    """A transport, and clients of it."""

    def __init__(self, limits: TransportLimits | None = None) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="tr-")
        self.path = f"{self.folder.name}/s"
        self.wakeup, self.waker = socket.socketpair()
        self.wakeup.setblocking(False)
        listener = Listener(UnixAddress(self.path))
        self.transport = Transport(listener, wakeup=self.wakeup, limits=limits)
        self.clients: list[socket.socket] = []

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(5)
        client.connect(self.path)
        self.clients.append(client)
        return client

    def happenings(self, holds: Callable[[list[Happening]], bool]) -> list[Happening]:
        """Everything that happens until `holds`."""
        seen: list[Happening] = []
        for _ in range(500):
            seen += self.transport.poll(0.01)
            if holds(seen):
                return seen
        raise AssertionError(f"only this happened: {seen}")

    def close(self) -> None:
        self.transport.close()
        for each in (*self.clients, self.wakeup, self.waker):
            each.close()
        self.folder.cleanup()


@pytest.fixture
def harness() -> Iterator[Harness]:
    made = Harness()
    yield made
    made.close()


def read_events(client: socket.socket, count: int) -> list[Event]:
    decoder = event_decoder()
    events: list[Event] = []
    while len(events) < count:
        data = client.recv(65536)
        assert data, f"closed after {events}"
        events += decoder.feed(data)
    return events


def wait_closed(client: socket.socket) -> None:
    """Read until the other side closes; the socket's timeout fails the test."""
    with contextlib.suppress(ConnectionError):
        while client.recv(1 << 20):
            pass


def closed(connection_id: int) -> Callable[[list[Happening]], bool]:
    return lambda seen: (connection_id, Notice.CLOSED) in seen


def test_commands_arrive_with_the_connection_they_came_over(harness: Harness) -> None:
    first, second = harness.connect(), harness.connect()
    first.sendall(encode_frame(StatusQuery(1)))
    second.sendall(encode_frame(StatusQuery(2)))
    seen = harness.happenings(lambda seen: len(seen) == 4)
    assert {(1, Notice.OPENED), (2, Notice.OPENED)} <= set(seen)
    assert (1, StatusQuery(1)) in seen
    assert (2, StatusQuery(2)) in seen


def test_events_reach_the_client_they_were_sent_to(harness: Harness) -> None:
    first, second = harness.connect(), harness.connect()
    harness.happenings(lambda seen: len(seen) == 2)
    harness.transport.send(2, Progress(0.5, "second"))
    harness.transport.send(1, Progress(0.5, "first"))
    assert read_events(first, 1) == [Progress(0.5, "first")]
    assert read_events(second, 1) == [Progress(0.5, "second")]


@settings(max_examples=20, deadline=None)
@given(
    commands=st.lists(st.builds(Abort, st.text(max_size=50)), min_size=1, max_size=20),
    piece_bytes=st.integers(1, 40),
)
def test_frames_may_arrive_in_pieces_of_any_size(commands: list[Command], piece_bytes: int) -> None:
    harness = Harness()
    try:
        client = harness.connect()
        stream = b"".join(map(encode_frame, commands))
        seen: list[Happening] = []
        for at in range(0, len(stream), piece_bytes):
            client.sendall(stream[at : at + piece_bytes])
            seen += harness.transport.poll(0)
        seen += harness.transport.poll(0)
        assert [news for _, news in seen if not isinstance(news, Notice)] == commands
    finally:
        harness.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: engine\r\n\r\n",
        struct.pack(">I", MAX_FRAME_BYTES + 1),
        struct.pack(">I", 3) + b"\xc1\xc1\xc1",
        struct.pack(">I", 1) + b"\x90",
        encode_frame(Progress(1.0, "an event is no command")),
        struct.pack(">I", 100_000) + b"\x91" * 100_000,
        struct.pack(">I", 4) + b"\xa3\xff\xfe\xfd",
    ],
    ids=["http", "too-long", "no-msgpack", "no-command", "an-event", "deep-nesting", "no-utf8"],
)
def test_garbage_closes_only_the_connection_it_came_over(harness: Harness, garbage: bytes) -> None:
    hostile, innocent = harness.connect(), harness.connect()
    harness.happenings(lambda seen: len(seen) == 2)
    hostile.sendall(garbage)
    harness.happenings(closed(1))
    wait_closed(hostile)
    innocent.sendall(encode_frame(StatusQuery(7)))
    harness.happenings(lambda seen: (2, StatusQuery(7)) in seen)


def test_a_client_that_leaves_is_noticed(harness: Harness) -> None:
    client = harness.connect()
    harness.happenings(lambda seen: len(seen) == 1)
    client.close()
    harness.happenings(closed(1))
    harness.transport.send(1, Progress(1.0, "nobody hears this"))
    assert harness.transport.connection_ids == []


def test_a_client_that_does_not_read_is_cut_off_without_blocking_anyone() -> None:
    harness = Harness(TransportLimits(unsent_bytes=100_000))
    try:
        deaf, listening = harness.connect(), harness.connect()
        harness.happenings(lambda seen: len(seen) == 2)
        event = Chunks((TokenChunk("r", 0, tuple(range(1000))),))
        for _ in range(1000):
            harness.transport.send(1, event)
        harness.happenings(closed(1))
        wait_closed(deaf)
        harness.transport.send(2, Progress(0.1, "still here"))
        assert read_events(listening, 1) == [Progress(0.1, "still here")]
    finally:
        harness.close()


def test_what_the_kernel_does_not_take_at_once_is_delivered_later_in_order(
    harness: Harness,
) -> None:
    client = harness.connect()
    harness.happenings(lambda seen: len(seen) == 1)
    events: list[Event] = [Progress(0.0, f"{number:05}" * 100) for number in range(2000)]
    for event in events:
        harness.transport.send(1, event)
    received: list[Event] = []
    decoder = event_decoder()
    client.setblocking(False)
    while len(received) < len(events):
        harness.transport.poll(0)
        try:
            received += decoder.feed(client.recv(65536))
        except BlockingIOError:
            continue
    assert received == events


def test_one_client_too_many_is_turned_away() -> None:
    harness = Harness(TransportLimits(connections=1))
    try:
        harness.connect()
        harness.happenings(lambda seen: len(seen) == 1)
        surplus = harness.connect()
        harness.transport.poll(0.1)
        wait_closed(surplus)
        assert harness.transport.connection_ids == [1]
    finally:
        harness.close()


def test_the_wakeup_socket_ends_a_wait(harness: Harness) -> None:
    harness.waker.send(b"x")
    assert harness.transport.poll(None) == [(WAKEUP, Notice.WOKEN)]
    assert harness.transport.poll(0) == []


def test_closing_delivers_what_was_sent_before(harness: Harness) -> None:
    client = harness.connect()
    harness.happenings(lambda seen: len(seen) == 1)
    harness.transport.send(1, Progress(1.0, "goodbye"))
    harness.transport.close(flush_s=1.0)
    assert read_events(client, 1) == [Progress(1.0, "goodbye")]
    wait_closed(client)
    assert not Path(harness.path).exists()


def test_only_the_owner_may_use_the_socket_file(harness: Harness) -> None:
    assert stat.S_IMODE(Path(harness.path).stat().st_mode) == 0o600


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    listener = Listener(UnixAddress(str(path)))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    listener.close()
    assert not path.exists()


def test_a_socket_somebody_listens_on_is_left_alone(tmp_path: Path) -> None:
    listener = Listener(UnixAddress(str(tmp_path / "s")))
    with pytest.raises(OSError, match="in use"):
        Listener(UnixAddress(str(tmp_path / "s")))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
    listener.close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(SettingsError, match="not a socket"):
        Listener(UnixAddress(str(path)))
    assert path.read_text() == "data"


def test_a_socket_file_of_a_successor_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    old = Listener(UnixAddress(str(path)))
    path.unlink()
    new = Listener(UnixAddress(str(path)))
    old.close()
    assert path.exists()
    new.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_interfaces_that_other_machines_reach_are_refused(host: str) -> None:
    with pytest.raises(SettingsError, match="no authentication"):
        Listener(TcpAddress(host, 7001))


def test_loopback_tcp_works_like_a_unix_socket() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    transport = Transport(Listener(TcpAddress("127.0.0.1", port)))
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(encode_frame(StatusQuery(1)))
        seen: list[Happening] = []
        while len(seen) < 2:
            seen += transport.poll(1)
        assert seen == [(1, Notice.OPENED), (1, StatusQuery(1))]
        transport.send(1, Progress(1.0, "heard"))
        assert read_events(client, 1) == [Progress(1.0, "heard")]
    transport.close()


def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as user:
        user.bind(("127.0.0.1", 0))
        user.listen()
        with pytest.raises(OSError, match="in use"):
            Listener(TcpAddress("127.0.0.1", user.getsockname()[1]))


@pytest.mark.parametrize(
    "text",
    ["", "unix:", "tcp:", "tcp:host", "tcp:host:0", "tcp:host:65536", "tcp::80", "http://host:80",
     "unix:/" + "x" * 200, "unix:/a\0b", "tcp:host:８0"],
)  # fmt: skip
def test_addresses_that_cannot_work_name_the_setting(text: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_address(text)
    assert raised.value.param == "listen"


@pytest.mark.parametrize(
    "text", ["unix:/run/engine.sock", "tcp:127.0.0.1:7001", "tcp:[::1]:7001", "tcp:localhost:1"]
)
def test_addresses_are_written_as_they_are_read(text: str) -> None:
    assert str(parse_address(text)) == text

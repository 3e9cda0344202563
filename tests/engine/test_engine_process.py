"""The engine process from outside: how it starts, what it says, how it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from steelyard.contract import EngineInfo, TokenChunk
from steelyard.contract.codec import encode_frame, event_decoder
from steelyard.contract.errors import ErrorInfo
from steelyard.contract.wire import (
    Chunks,
    Command,
    Done,
    Drain,
    Event,
    Failed,
    Hello,
    Progress,
    StatusQuery,
    StatusReply,
    Submit,
)
from steelyard.engine.exit_codes import ExitCode
from steelyard.engine.fake_runner import FakeFault, FakeModel
from tests.engine_processes import ENGINE, EngineFolder, Start, make_request, wait_until

Process = subprocess.Popen[bytes]


class Client:
    """A blocking client that keeps every event it has seen."""

    def __init__(self, folder: EngineFolder) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        wait_until(lambda: self._try(folder))
        self._decoder = event_decoder()
        self.events: list[Event] = []

    def _try(self, folder: EngineFolder) -> bool:
        try:
            self.socket.connect(str(folder.socket))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def send(self, *commands: Command) -> None:
        self.socket.sendall(b"".join(map(encode_frame, commands)))

    def read_until(self, kind: type[Event]) -> Event:
        """The first event of this kind, seen already or to come."""
        while not (found := [event for event in self.events if type(event) is kind]):
            assert self.read_some(), f"closed after {self.events}"
        return found[0]

    def read_some(self) -> bool:
        data = self.socket.recv(65536)
        self.events += self._decoder.feed(data)
        return bool(data)

    def read_to_end(self) -> None:
        try:
            while self.read_some():
                pass
        except ConnectionError:
            pass

    @property
    def chunks(self) -> list[TokenChunk]:
        return [chunk for event in self.events if type(event) is Chunks for chunk in event.chunks]


def end_of(process: Process, *, limit_s: float = 5.0) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    output, errors = process.communicate(timeout=limit_s)
    return process.returncode, output.decode(), errors.decode()


def started(start: Start, folder: EngineFolder, model: FakeModel, **fields: object) -> Process:
    process = start(folder.config(model, **fields))
    client = Client(folder)
    client.read_until(Hello)
    client.socket.close()
    return process


def test_a_client_sees_progress_while_loading_and_hello_when_ready(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(load_s=0.6)))
    client = Client(engine_folder)
    hello = client.read_until(Hello)
    assert isinstance(hello, Hello)
    shares = [event.share for event in client.events if isinstance(event, Progress)]
    assert len(shares) >= 3
    assert shares == sorted(shares)
    assert hello.info == EngineInfo(
        model="fake",
        context_tokens=4096,
        vocab_size=256,
        end_token_ids=(0,),
        epoch=hello.info.epoch,
        pid=hello.info.pid,
        kv_block_tokens=16,
        kv_blocks_total=1023,
        max_running=64,
        details=hello.info.details,
    )


def test_early_commands_are_answered_while_loading(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    start_engine(engine_folder.config(FakeModel(load_s=2.0)))
    client = Client(engine_folder)
    client.send(Submit(make_request()), StatusQuery(1), Drain(2))
    status, failed, done = (client.read_until(kind) for kind in (StatusReply, Failed, Done))
    assert isinstance(status, StatusReply) and status.status.state == "starting"
    assert isinstance(failed, Failed) and failed.error.code == "engine_starting"
    assert isinstance(done, Done) and done.error is not None


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (b"", "configuration"),
        (b"{", "configuration"),
        (b'{"checkpoint": "x", "model": "m", "listen": "unix:/x", "colour": 1}', "colour"),
        (b'{"checkpoint": "x", "model": "m", "listen": "nowhere"}', "nowhere"),
        (b'{"checkpoint": "x", "model": "m", "listen": "unix:/x", "watchdog_s": 0}', "watchdog_s"),
        (b'{"checkpoint": "x", "model": "m", "listen": "tcp:0.0.0.0:7001"}', "authentication"),
    ],
)
def test_a_bad_configuration_is_reported_and_has_its_own_exit_status(
    start_engine: Start, document: bytes, named: str
) -> None:
    status, output, errors = end_of(start_engine(document))
    assert status == ExitCode.BAD_CONFIG
    report = msgspec.json.decode(output, type=ErrorInfo)
    assert report.code == "settings_error"
    assert named in report.message + (report.param or "")
    assert "Traceback" not in errors


def test_a_bad_checkpoint_is_reported_and_has_its_own_exit_status(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    config = engine_folder.config()
    (engine_folder.path / "model.json").write_text('{"vocab_size": "many"}')
    status, output, errors = end_of(start_engine(config))
    assert status == ExitCode.BAD_CHECKPOINT
    report = msgspec.json.decode(output, type=ErrorInfo)
    assert report.code == "checkpoint_error"
    assert report.param == str(engine_folder.path / "model.json")
    assert "Traceback" not in errors
    assert not engine_folder.socket.exists()


def test_an_address_in_use_is_reported_and_its_user_is_not_disturbed(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    config = engine_folder.config()
    first = started(start_engine, engine_folder, FakeModel())
    status, output, _ = end_of(start_engine(config))
    assert status == ExitCode.BAD_ADDRESS
    assert "in use" in msgspec.json.decode(output, type=ErrorInfo).message
    assert first.poll() is None
    Client(engine_folder).read_until(Hello)


def test_torch_is_not_imported_for_the_fake_runner() -> None:
    script = (
        "import sys; from steelyard.engine import process; from steelyard.engine.runners import"
        " RUNNER_KINDS; __import__(RUNNER_KINDS['fake'][0]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_sigterm_ends_an_idle_engine_cleanly(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    process = started(start_engine, engine_folder, FakeModel())
    process.send_signal(signal.SIGTERM)
    status, output, errors = end_of(process, limit_s=2)
    assert (status, output) == (ExitCode.ENDED, "")
    assert "Traceback" not in errors
    assert not engine_folder.socket.exists()


def test_sigterm_while_loading_ends_the_process_at_once(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    process = start_engine(engine_folder.config(FakeModel(load_s=60)))
    Client(engine_folder).read_until(Progress)
    process.send_signal(signal.SIGTERM)
    status, output, errors = end_of(process, limit_s=1)
    assert (status, output) == (ExitCode.ENDED, "")
    assert "stopped while loading" in errors
    assert not engine_folder.socket.exists()


def test_sigterm_ends_a_load_that_is_stuck_in_foreign_code(engine_folder: EngineFolder) -> None:
    script = f"""
import hashlib
from steelyard.contract.address import UnixAddress
from steelyard.engine.listener import Listener
from steelyard.engine.loading import LoadingDesk
from steelyard.engine.stop_signals import StopSignals
from steelyard.engine.transport import Transport
stop = StopSignals(has_parent=False)
transport = Transport(Listener(UnixAddress({str(engine_folder.socket)!r})), wakeup=stop.wakeup)
with LoadingDesk(transport, stop), stop.interrupting():
    # Minutes in C, without the interpreter lock and deaf to Python's signal handlers.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
    client = Client(engine_folder)
    client.read_until(Progress)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=5) == ExitCode.ENDED
    process.communicate()
    client.read_to_end()
    assert not engine_folder.socket.exists()


def test_sigterm_finishes_running_streams_and_refuses_new_ones(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    process = start_engine(engine_folder.config(FakeModel(step_s=0.01)))
    client = Client(engine_folder)
    client.read_until(Hello)
    client.send(Submit(make_request("running", max_tokens=60)))
    client.read_until(Chunks)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    client.send(Submit(make_request("late")), StatusQuery(1))
    client.read_to_end()
    assert [chunk.start for chunk in client.chunks] == list(range(60))
    assert client.chunks[-1].finish_reason == "length"
    [failed] = [event for event in client.events if isinstance(event, Failed)]
    assert (failed.request_id, failed.error.code) == ("late", "engine_draining")
    [reply] = [event for event in client.events if isinstance(event, StatusReply)]
    assert reply.status.state == "draining"
    assert end_of(process)[0] == ExitCode.ENDED


def test_what_a_drain_has_no_time_for_is_handed_back(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    process = start_engine(engine_folder.config(FakeModel(step_s=0.02), drain_s=0.2))
    client = Client(engine_folder)
    client.read_until(Hello)
    client.send(Submit(make_request("long", max_tokens=4000)))
    client.read_until(Chunks)
    process.send_signal(signal.SIGTERM)
    client.read_to_end()
    [failed] = [event for event in client.events if isinstance(event, Failed)]
    assert (failed.request_id, failed.error.code) == ("long", "engine_draining")
    assert end_of(process)[0] == ExitCode.ENDED


def test_ctrl_c_is_left_to_the_parent(engine_folder: EngineFolder, start_engine: Start) -> None:
    process = started(start_engine, engine_folder, FakeModel(), parent_pid=os.getpid())
    process.send_signal(signal.SIGINT)
    Client(engine_folder).read_until(Hello)
    assert process.poll() is None


def test_ctrl_c_stops_an_engine_that_was_started_by_hand(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    process = started(start_engine, engine_folder, FakeModel())
    process.send_signal(signal.SIGINT)
    status, _, errors = end_of(process)
    assert status == ExitCode.ENDED
    assert "Traceback" not in errors


def test_an_engine_does_not_outlive_its_parent(engine_folder: EngineFolder) -> None:
    script = f"""
import subprocess, sys, time, os, msgspec
from steelyard.engine.config import EngineConfig
config = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineConfig)
config = msgspec.structs.replace(config, parent_pid=os.getpid())
engine = subprocess.Popen({ENGINE!r}, stdin=subprocess.PIPE, start_new_session=True)
engine.stdin.write(msgspec.json.encode(config))
engine.stdin.close()
print(engine.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin and parent.stdout
    parent.stdin.write(msgspec.json.encode(engine_folder.config()))
    parent.stdin.close()
    engine_pid = int(parent.stdout.readline())
    client = Client(engine_folder)
    client.read_until(Hello)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    killed_s = time.monotonic()
    client.read_to_end()
    assert time.monotonic() - killed_s < 2
    wait_until(lambda: not is_alive(engine_pid), limit_s=2)


def is_alive(pid: int) -> bool:
    """True while the process runs; a zombie that nobody reaped counts as gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_a_step_that_hangs_ends_the_process_with_all_stacks(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    hang = FakeModel(faults=(FakeFault(step=3, kind="hang"),))
    process = start_engine(engine_folder.config(hang, watchdog_s=0.4))
    client = Client(engine_folder)
    client.read_until(Hello)
    client.send(Submit(make_request()))
    hung_s = time.monotonic()
    client.read_to_end()
    assert time.monotonic() - hung_s < 2
    status, _, errors = end_of(process)
    assert status == ExitCode.STALLED
    assert "step 3 runs for more than 0.4 s" in errors
    assert "in serve" in errors and "fake_runner.py" in errors


def test_long_idleness_and_many_short_steps_do_not_trip_the_watchdog(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    process = start_engine(engine_folder.config(FakeModel(step_s=0.05), watchdog_s=0.2))
    client = Client(engine_folder)
    client.read_until(Hello)
    time.sleep(0.5)
    client.send(Submit(make_request(max_tokens=15)))
    while not client.chunks or client.chunks[-1].finish_reason is None:
        assert client.read_some()
    assert process.poll() is None


def test_a_failed_step_fails_its_requests_and_nothing_else(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    model = FakeModel(faults=(FakeFault(step=3, kind="fail"),))
    process = start_engine(engine_folder.config(model))
    client = Client(engine_folder)
    client.read_until(Hello)
    client.send(Submit(make_request("a")), Submit(make_request("b")))
    failures = set()
    while len(failures) < 2:
        assert client.read_some()
        failures = {event for event in client.events if isinstance(event, Failed)}
    assert {failure.request_id for failure in failures} == {"a", "b"}
    assert {failure.error.code for failure in failures} == {"engine_failed"}
    client.events.clear()
    client.send(Submit(make_request("c", max_tokens=4)))
    while len(client.chunks) < 4:
        assert client.read_some()
    client.send(StatusQuery(1))
    reply = client.read_until(StatusReply)
    assert isinstance(reply, StatusReply)
    assert (reply.status.kv_blocks_used, reply.status.failed_total) == (0, 2)
    assert process.poll() is None


def test_a_bug_in_the_runner_ends_the_process_loudly(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    bug = FakeModel(faults=(FakeFault(step=2, kind="raise"),))
    process = start_engine(engine_folder.config(bug))
    client = Client(engine_folder)
    client.read_until(Hello)
    client.send(Submit(make_request()))
    client.read_to_end()
    status, _, errors = end_of(process)
    assert status == ExitCode.CRASHED
    assert "RuntimeError: the fake model was told to raise" in errors


def test_sigusr1_shows_what_every_thread_does_and_changes_nothing(
    engine_folder: EngineFolder, start_engine: Start
) -> None:
    process = started(start_engine, engine_folder, FakeModel())
    process.send_signal(signal.SIGUSR1)
    Client(engine_folder).read_until(Hello)
    process.send_signal(signal.SIGTERM)
    status, _, errors = end_of(process)
    assert status == ExitCode.ENDED
    assert "watchdog.py" in errors and "transport.py" in errors

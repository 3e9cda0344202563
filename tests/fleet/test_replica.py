"""A replica that keeps a real process alive, and one that does so in virtual time."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import uvloop

from steelyard.backends.embedded import EmbeddedEngine
from steelyard.contract import EngineInfo, EngineStatus, TokenChunk
from steelyard.contract.errors import (
    CheckpointError,
    EngineLost,
    SettingsError,
)
from steelyard.contract.wire import Progress
from steelyard.engine.fake_runner import FakeModel
from steelyard.fleet.config import RestartPolicy
from steelyard.fleet.lifecycle import Phase
from steelyard.fleet.process import LocalLauncher, ProcessCommand, engine_command
from steelyard.fleet.replica import Replica
from tests.engine_processes import EngineFolder, make_request, wait_until_async

INFO = EngineInfo(model="m", context_tokens=1, vocab_size=1, end_token_ids=(), epoch="e")


def engine_replica(
    folder: EngineFolder, model: FakeModel | None = None, **options: object
) -> tuple[Replica, EmbeddedEngine]:
    config = folder.config(model)
    engine = EmbeddedEngine(config.listen)
    launcher = LocalLauncher("r0", engine_command(config))
    return Replica("r0", launcher=launcher, engine=engine, **options), engine


class NoEngine:
    """An engine object that never gets a connection."""

    async def connect(
        self, *, timeout_s: float, on_progress: Callable[[Progress], None] | None = None
    ) -> EngineInfo:
        await asyncio.Event().wait()
        raise AssertionError

    async def wait_lost(self) -> EngineLost:
        raise AssertionError("never connected")

    async def status(self) -> EngineStatus:
        raise AssertionError("never connected")

    async def close(self) -> None:
        pass


def script_replica(script: str, **options: object) -> Replica:
    """A replica whose process is a few lines of Python or shell."""
    launcher = LocalLauncher("r0", ProcessCommand(("/bin/sh", "-c", script)))
    return Replica("r0", launcher=launcher, engine=NoEngine(), **options)


async def collect(engine: EmbeddedEngine, max_tokens: int = 8) -> list[TokenChunk]:
    return [chunk async for chunk in engine.generate(make_request(max_tokens=max_tokens))]


async def test_a_killed_engine_comes_back_and_serves_again(engine_folder: EngineFolder) -> None:
    replica, engine = engine_replica(engine_folder, FakeModel(step_s=0.005))
    replica.startup()
    await replica.wait_ready()
    first = engine.info
    assert replica.status.pid == first.pid
    streaming = asyncio.create_task(collect(engine, max_tokens=4000))
    while not (await engine.status()).produced_tokens_total:
        await asyncio.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(EngineLost):
        await streaming
    await wait_until_async(lambda: replica.status.phase is not Phase.READY)
    await replica.wait_ready()
    assert engine.info.pid == replica.status.pid != first.pid
    assert engine.info.epoch != first.epoch
    assert replica.status.restarts == 1
    assert len(await collect(engine)) == 8
    await replica.shutdown()
    assert not psutil.pid_exists(first.pid)


def test_a_replica_works_under_uvloop(engine_folder: EngineFolder) -> None:
    uvloop.run(_die_and_come_back(engine_folder))


async def _die_and_come_back(folder: EngineFolder) -> None:
    replica, engine = engine_replica(folder)
    replica.startup()
    await replica.wait_ready()
    os.kill(engine.info.pid, signal.SIGKILL)
    await wait_until_async(lambda: replica.status.phase is not Phase.READY)
    await replica.wait_ready()
    assert len(await collect(engine)) == 8
    await replica.shutdown()
    assert replica.status.phase is Phase.DOWN


async def test_shutdown_lets_running_streams_finish(engine_folder: EngineFolder) -> None:
    replica, engine = engine_replica(engine_folder, FakeModel(step_s=0.005))
    replica.startup()
    await replica.wait_ready()
    streaming = asyncio.create_task(collect(engine, max_tokens=60))
    while not (await engine.status()).produced_tokens_total:
        await asyncio.sleep(0.01)
    await replica.shutdown()
    assert len(await streaming) == 60
    assert replica.status.phase is Phase.DOWN
    assert not engine_folder.socket.exists()
    await replica.shutdown()


async def test_shutdown_while_loading_ends_at_once(engine_folder: EngineFolder) -> None:
    replica, _ = engine_replica(engine_folder, FakeModel(load_s=60))
    replica.startup()
    await wait_until_async(lambda: replica.status.progress is not None)
    started_s = time.monotonic()
    await replica.shutdown()
    assert time.monotonic() - started_s < 1


async def test_a_replica_can_be_started_again_after_its_shutdown(
    engine_folder: EngineFolder,
) -> None:
    replica, engine = engine_replica(engine_folder)
    for _ in range(2):
        replica.startup()
        await replica.wait_ready()
        assert len(await collect(engine)) == 8
        await replica.shutdown()
        with pytest.raises(EngineLost, match="stopped"):
            await replica.wait_ready()


async def test_a_bad_checkpoint_is_surfaced_in_the_engines_own_words_and_not_retried(
    engine_folder: EngineFolder,
) -> None:
    replica, _ = engine_replica(engine_folder)
    (engine_folder.path / "model.json").write_text("{}garbage")
    replica.startup()
    with pytest.raises(CheckpointError) as raised:
        await replica.wait_ready()
    assert raised.value.param == str(engine_folder.path / "model.json")
    assert replica.status.phase is Phase.BROKEN
    assert replica.status.restarts == 0
    await replica.shutdown()


async def test_a_program_that_does_not_exist_is_surfaced_and_not_retried() -> None:
    launcher = LocalLauncher("r0", ProcessCommand(("/nowhere/engine",)))
    replica = Replica("r0", launcher=launcher, engine=NoEngine())
    replica.startup()
    with pytest.raises(SettingsError, match="/nowhere/engine"):
        await replica.wait_ready()
    await replica.shutdown()


async def test_a_process_that_never_becomes_ready_is_given_up_with_its_last_words() -> None:
    policy = RestartPolicy(backoff_first_s=0.01, give_up_after=3)
    replica = script_replica("echo the disk is on fire >&2; exit 3", policy=policy)
    replica.startup()
    with pytest.raises(EngineLost, match=r"ended with status 3\n  the disk is on fire"):
        await replica.wait_ready()
    assert replica.status.restarts == 2
    await replica.shutdown()


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    script = "trap '' TERM; echo armed >&2; while :; do sleep 0.05; done"
    replica = script_replica(script, policy=RestartPolicy(stop_grace_s=0.3))
    replica.startup()
    await wait_until_async(lambda: "armed" in replica.status.stderr_tail)
    pid = replica.status.pid
    started_s = time.monotonic()
    await replica.shutdown()
    assert 0.3 <= time.monotonic() - started_s < 2
    assert pid is not None and not psutil.pid_exists(pid)


async def test_killing_takes_the_helpers_of_a_process_along() -> None:
    script = "sleep 1000 & echo $! >&2; trap '' TERM; while :; do wait; done"
    replica = script_replica(script, policy=RestartPolicy(stop_grace_s=0.1))
    replica.startup()
    await wait_until_async(lambda: bool(replica.status.stderr_tail))
    helper = psutil.Process(int(replica.status.stderr_tail[0]))
    await replica.shutdown()
    await wait_until_async(lambda: not helper.is_running() or helper.status() == "zombie")


async def test_a_dead_process_leaves_no_helpers_behind() -> None:
    script = "sleep 1000 & echo $! >&2; exit 1"
    process = await LocalLauncher("r0", ProcessCommand(("/bin/sh", "-c", script))).launch()
    started_s = time.monotonic()
    await process.wait()
    assert time.monotonic() - started_s < 0.5, "the helper held the pipes open"
    helper = int(process.tail[0])
    await wait_until_async(
        lambda: not psutil.pid_exists(helper) or psutil.Process(helper).status() == "zombie"
    )


async def test_helpers_in_groups_of_their_own_are_found(tmp_path: Path) -> None:
    own_group = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(99)"
    script = f"{sys.executable} -c '{own_group}' > {tmp_path}/pid & wait"
    process = await LocalLauncher("r0", ProcessCommand(("/bin/sh", "-c", script))).launch()
    pid_file = tmp_path / "pid"
    await wait_until_async(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    helper = int(pid_file.read_text())
    assert os.getpgid(helper) == helper
    process.kill()
    await process.wait()
    await wait_until_async(
        lambda: not psutil.pid_exists(helper) or psutil.Process(helper).status() == "zombie"
    )


async def test_a_process_that_is_not_ready_in_time_is_replaced() -> None:
    policy = RestartPolicy(start_timeout_s=0.1, give_up_after=2)
    replica = script_replica("exec sleep 1000", policy=policy)
    replica.startup()
    with pytest.raises(Exception, match="not ready within"):
        await replica.wait_ready()
    await replica.shutdown()


async def test_a_process_runs_in_a_session_of_its_own() -> None:
    replica = script_replica("echo up >&2; exec sleep 1000")
    replica.startup()
    await wait_until_async(lambda: bool(replica.status.stderr_tail))
    pid = replica.status.pid
    assert pid is not None
    assert os.getsid(pid) == os.getpgid(pid) == pid
    await replica.shutdown()


async def test_standard_error_goes_to_the_log_with_the_replicas_name_and_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = r"printf 'WARNING x: careful\nplain\nunfinished' >&2; yes | head -c 100000 >&2"
    with caplog.at_level(logging.INFO, "steelyard.fleet"):
        replica = script_replica(script, policy=RestartPolicy(give_up_after=1))
        replica.startup()
        with pytest.raises(EngineLost):
            await replica.wait_ready()
        await replica.shutdown()
    lines = [(record.levelname, record.message) for record in caplog.records]
    assert ("WARNING", "r0: WARNING x: careful") in lines
    assert ("INFO", "r0: plain") in lines
    assert ("INFO", "r0: unfinishedy") in lines


async def test_endless_lines_do_not_fill_the_memory() -> None:
    process = await LocalLauncher(
        "r0", ProcessCommand(("/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x >&2"))
    ).launch()
    await process.wait()
    assert [len(line) for line in process.tail] == [4096]


async def test_fifty_restarts_leave_no_zombie_and_no_open_file() -> None:
    this = psutil.Process()
    policy = RestartPolicy(backoff_first_s=0.0, give_up_after=60)
    replica = script_replica("exit 1", policy=policy)
    replica.startup()
    await wait_until_async(lambda: replica.status.restarts >= 5, limit_s=10)
    files, threads = this.num_fds(), this.num_threads()
    await wait_until_async(lambda: replica.status.restarts >= 55, limit_s=30)
    await replica.shutdown()
    assert this.num_fds() <= files
    await wait_until_async(lambda: this.num_threads() <= threads)
    assert [child for child in this.children() if child.status() == "zombie"] == []


async def test_a_stopped_process_is_replaced(engine_folder: EngineFolder) -> None:
    config = engine_folder.config()
    engine = EmbeddedEngine(config.listen, status_timeout_s=0.1)
    policy = RestartPolicy(silence_s=0.5, reconnect_timeout_s=0.3)
    launcher = LocalLauncher("r0", engine_command(config))
    replica = Replica("r0", launcher=launcher, engine=engine, policy=policy)
    replica.startup()
    await replica.wait_ready()
    first = engine.info.pid
    os.kill(first, signal.SIGSTOP)
    await wait_until_async(lambda: replica.status.phase is not Phase.READY)
    await replica.wait_ready()
    assert engine.info.pid != first
    assert not psutil.pid_exists(first)
    await replica.shutdown()


async def test_a_cancelled_shutdown_kills() -> None:
    replica = script_replica("trap '' TERM; echo up >&2; while :; do sleep 1; done")
    replica.startup()
    await wait_until_async(lambda: bool(replica.status.stderr_tail))
    pid = replica.status.pid
    assert pid is not None
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(replica.shutdown(), 0.2)
    await wait_until_async(lambda: not psutil.pid_exists(pid))

"""The engine process: `python -m steelyard.engine.process`.

    standard input    an `EngineConfig` as one JSON document, then end of file
    standard output   one `ErrorInfo` as a JSON line, when it ends because something cannot work
    standard error    log lines, and stack traces when it dies
    exit status       `exit_codes.ExitCode`

The socket is open before the model is loaded, so clients see how far that is. Whoever started the
process decides when it ends (SIGTERM: finish what was accepted) and whether to start another one.
"""

import faulthandler
import gc
import logging
import os
import signal
import sys
import time
import uuid
from pathlib import Path

import msgspec

from steelyard.contract import EngineInfo, RealClock
from steelyard.contract.address import parse_address
from steelyard.contract.errors import (
    CheckpointError,
    EngineFailed,
    SettingsError,
    SteelyardError,
    to_info,
)
from steelyard.engine.config import EngineConfig
from steelyard.engine.exit_codes import ExitCode
from steelyard.engine.listener import Listener
from steelyard.engine.loading import LoadingDesk
from steelyard.engine.loop import EngineLoop, LoopParts
from steelyard.engine.runner_protocol import LoadedModel, ProgressReport, StepRunner
from steelyard.engine.runners import create_runner
from steelyard.engine.stop_signals import LoadInterrupted, StopSignals
from steelyard.engine.threads import resolve_threads, thread_environment
from steelyard.engine.transport import Transport
from steelyard.engine.watchdog import Watchdog
from steelyard.scheduling.config import SchedulerConfig
from steelyard.scheduling.scheduler import Scheduler

__all__ = ["main", "scheduler_config"]

_log = logging.getLogger("steelyard.engine.process")

_FLUSH_S = 1.0


def main() -> ExitCode:
    """Run one engine from start to end."""
    report = _take_stdout()
    has_parent = False
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        config = _read_config(sys.stdin.buffer.read())
        has_parent = config.parent_pid != 0
        _set_up_logging(has_parent=has_parent)
        _serve(config)
    except SteelyardError as error:
        if not has_parent:  # a parent reads the report, and would say it twice
            _log.error("%s", error)
        os.write(report, msgspec.json.encode(to_info(error)) + b"\n")
        return _exit_code(error)
    except Exception:  # noqa: BLE001 (the process's edge: it ends, the parent starts another)
        _log.critical("the engine process dies", exc_info=True)
        return ExitCode.CRASHED
    return ExitCode.ENDED


def _serve(config: EngineConfig) -> None:
    """Startup, main loop, shutdown."""
    stop = StopSignals(has_parent=config.parent_pid != 0)
    watchdog = Watchdog(limit_s=config.watchdog_s, parent_pid=config.parent_pid)
    watchdog.start()
    transport = _open_transport(config, stop)
    try:
        started_s = time.monotonic()
        with LoadingDesk(transport, stop) as desk, stop.interrupting():
            runner, model = _load(config, desk.report)
        # What was imported and loaded stays: keep it out of collections, each a pause of 0.1 s.
        gc.freeze()
        scheduler = Scheduler(scheduler_config(config, model), model.groups, model.end_token_ids)
        runner.bind(scheduler.block_tables)
        info = _describe(config, model, scheduler, load_s=time.monotonic() - started_s)
        _log.info("ready after %s s: %s on %s", info.details["load_s"], info.model, config.listen)
        parts = LoopParts(transport, scheduler, runner, watchdog.age, RealClock())
        EngineLoop(
            parts, info, is_stop_requested=lambda: stop.is_requested, drain_s=config.drain_s
        ).serve()
    except LoadInterrupted:
        _log.info("stopped while loading")
    finally:
        transport.close(flush_s=_FLUSH_S)


def _take_stdout() -> int:
    """Keep standard output for the report; whatever else is printed goes to standard error."""
    report = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return report


def _read_config(document: bytes) -> EngineConfig:
    try:
        config = msgspec.json.decode(document, type=EngineConfig)
    except msgspec.MsgspecError as error:
        raise SettingsError(f"the engine's configuration cannot be read: {error}") from error
    for name, is_sound in (
        ("watchdog_s", config.watchdog_s > 0),
        ("drain_s", config.drain_s >= 0),
        ("threads", config.threads >= 0),
        ("block_tokens", config.block_tokens >= 1),
        ("context_tokens", config.context_tokens >= 0),
        ("kv_bytes", config.kv_bytes >= 0),
    ):
        if not is_sound:
            raise SettingsError(f"{getattr(config, name)} is out of range", param=name)
    return config


def _set_up_logging(*, has_parent: bool) -> None:
    # A parent puts its own time stamp before each line, and finds the level at its start.
    stamp = "" if has_parent else "%(asctime)s "
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format=f"{stamp}%(levelname)s %(name)s: %(message)s",
    )


def _open_transport(config: EngineConfig, stop: StopSignals) -> Transport:
    try:
        return Transport(Listener(parse_address(config.listen)), wakeup=stop.wakeup)
    except OSError as error:
        raise EngineFailed(
            f"cannot listen on {config.listen}: {error.strerror or error}", param="listen"
        ) from error


def _load(config: EngineConfig, report: ProgressReport) -> tuple[StepRunner, LoadedModel]:
    threads = resolve_threads(config.threads)
    os.environ.update(thread_environment(threads))
    report(0.0, "importing")
    runner = create_runner(msgspec.structs.replace(config, threads=threads))
    return runner, runner.load(report)


def scheduler_config(config: EngineConfig, model: LoadedModel) -> SchedulerConfig:
    """What the scheduler is told of the engine's configuration and of the loaded model."""
    return SchedulerConfig(
        max_running=config.max_running,
        max_waiting=config.max_waiting,
        max_step_tokens=config.max_step_tokens,
        context_tokens=model.context_tokens,
        min_batch=config.min_batch,
        max_wait_s=config.max_wait_s,
        memory_threshold=config.memory_threshold,
        step_stretch=config.step_stretch,
        prefix_cache=config.prefix_cache,
    )


def _describe(
    config: EngineConfig, model: LoadedModel, scheduler: Scheduler, *, load_s: float
) -> EngineInfo:
    return EngineInfo(
        model=config.model,
        context_tokens=model.context_tokens,
        vocab_size=model.vocab_size,
        end_token_ids=model.end_token_ids,
        epoch=uuid.uuid4().hex,
        pid=os.getpid(),
        kv_block_tokens=min(group.block_tokens for group in model.groups),
        kv_blocks_total=scheduler.status_counters.kv_blocks_total,
        max_running=min(config.max_running, config.max_step_tokens),
        details={
            "checkpoint": Path(config.checkpoint).name,
            **model.details,
            "load_s": f"{load_s:.2f}",
        },
    )


def _exit_code(error: SteelyardError) -> ExitCode:
    match error:
        case CheckpointError():
            return ExitCode.BAD_CHECKPOINT
        case SettingsError():
            return ExitCode.BAD_CONFIG
        case EngineFailed(param="listen"):
            return ExitCode.BAD_ADDRESS
        case _:
            return ExitCode.CRASHED


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    # Not sys.exit: taking a torch interpreter apart costs seconds and can crash.
    os._exit(status)

"""How processes end, in words: why, what often helps, and whether another start can."""

import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from steelyard.contract.errors import EngineLost, ErrorInfo, SteelyardError, from_info
from steelyard.engine.exit_codes import ExitCode

__all__ = ["ProcessExit", "process_exit"]

_SHOWN_LINES = 10


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended. `error` can be shown to people."""

    code: int | None
    """Exit status; −n when signal n killed it; None when it was not our child, so that nobody
    told us."""
    error: SteelyardError
    is_final: bool
    """True when the same command would end the same way again."""


def process_exit(
    code: int | None, *, name: str, pid: int, report: bytes, tail: Sequence[str]
) -> ProcessExit:
    """The end of the process `pid` of `name`. `report` is what it wrote on standard output, an
    `ErrorInfo` as its last line if it had something to say; `tail` are its last log lines."""
    error = _reported(report) or _unreported(code, name, pid, tail)
    return ProcessExit(code, error, _is_final(code))


def _reported(report: bytes) -> SteelyardError | None:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError):
        return from_info(msgspec.json.decode(report.splitlines()[-1], type=ErrorInfo))
    return None


def _unreported(code: int | None, name: str, pid: int, tail: Sequence[str]) -> SteelyardError:
    last_words = "".join(f"\n  {line}" for line in list(tail)[-_SHOWN_LINES:])
    return EngineLost(
        f"the process {pid} of {name} {_describe(code)}{last_words}", fix=_advice(code)
    )


def _describe(code: int | None) -> str:
    if code is None:
        return "is gone"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    with contextlib.suppress(ValueError):
        return f"ended with status {code} ({ExitCode(code).name.lower().replace('_', ' ')})"
    return f"ended with status {code}"


def _advice(code: int | None) -> str:
    """What has often been the cause of such an end; empty when the last words must do."""
    if code is None:
        return ""
    if code == -signal.SIGKILL:
        return (
            "if nobody killed it, the machine ran out of memory (`dmesg` tells): lower "
            "kv_cache.memory, or set weights.precision to int8 or int4"
        )
    if -code in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV):
        return "if that repeats, engine.kernels = reference does without the compiled kernels"
    if code == ExitCode.STALLED:
        return (
            "raise engine.watchdog_s if a step may take so long, or lower batching.max_step_tokens"
        )
    return ""


def _is_final(code: int | None) -> bool:
    if code is None:
        return False
    with contextlib.suppress(ValueError):
        return ExitCode(code).is_final
    return False

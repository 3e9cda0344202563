"""Runs a program of somebody else's, which must not outlive whoever wants it.

Our own engine processes watch their parent; programs that know nothing of us are started through
this one: it reads on standard input what to start, passes SIGTERM on, and ends the whole session
when the parent is gone. It ends as the program did, so that whoever waits for it need not care.

    python -P -m steelyard.fleet.guardian < order.json
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from steelyard.contract.errors import SettingsError, to_info
from steelyard.engine.exit_codes import ExitCode
from steelyard.fleet.process import ProcessCommand
from steelyard.settings.paths import environment

__all__ = ["GuardedProgram", "guarded_command", "main"]

_LOOK_S = 0.5
_LARGEST_STATUS = 125
"""Above, shells put meanings of their own."""


class GuardedProgram(msgspec.Struct, frozen=True):
    """What to start, and for whom."""

    argv: list[str]
    variables: dict[str, str]
    """Added to the environment."""
    folder: str
    """Where it runs: no stray file there can shadow its modules."""
    socket: str | None
    """File that it listens on: one that a predecessor has left behind is removed first, because
    whoever was killed could not, and most programs refuse to start over it. None: none."""
    parent_pid: int
    grace_s: float
    """From SIGTERM to SIGKILL once the parent is gone."""


def guarded_command(
    argv: list[str],
    variables: dict[str, str],
    *,
    folder: str,
    grace_s: float,
    socket: str | None = None,
) -> ProcessCommand:
    """How to start a program that does not outlive this process."""
    program = GuardedProgram(argv, variables, folder, socket, os.getpid(), grace_s)
    # -P: the working directory must not be able to shadow modules.
    guardian = (sys.executable, "-P", "-m", "steelyard.fleet.guardian")
    return ProcessCommand(argv=guardian, stdin=msgspec.json.encode(program))


def main() -> int:
    """Entry point of the process; returns its exit status."""
    program = msgspec.json.decode(sys.stdin.buffer.read(), type=GuardedProgram)
    if program.socket is not None:
        Path(program.socket).unlink(missing_ok=True)
    try:
        child = subprocess.Popen(  # noqa: S603 (the command is the operator's own)
            program.argv,
            env={**environment(), **program.variables},
            cwd=program.folder,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,  # standard output is for the report
        )
    except OSError as error:
        report = SettingsError(
            f"cannot run {program.argv[0]}: {error.strerror}", fix="name a program that can be run"
        )
        sys.stdout.buffer.write(msgspec.json.encode(to_info(report)) + b"\n")
        return ExitCode.BAD_CONFIG
    signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))
    return _end_as(_wait(child, program))


def _wait(child: "subprocess.Popen[bytes]", program: GuardedProgram) -> int:
    """The child's status, once it has ended; ends it when the parent is gone."""
    deadline_s = None
    while True:
        try:
            return child.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            if os.getppid() == program.parent_pid:
                continue
        if deadline_s is None:
            child.terminate()
            deadline_s = time.monotonic() + program.grace_s
        elif time.monotonic() >= deadline_s:
            os.killpg(0, signal.SIGKILL)


def _end_as(status: int) -> int:
    """What the child's end was, as our own."""
    if status < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    # Statuses have meanings here that other programs do not know of.
    return 1 if status in set(ExitCode) - {ExitCode.ENDED} else min(status, _LARGEST_STATUS)


if __name__ == "__main__":
    sys.exit(main())

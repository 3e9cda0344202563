"""How every command ends: errors become sentences, signals become exit statuses.

    0  done             130  Ctrl-C
    1  an error         143  SIGTERM (129: the terminal was closed)
    2  wrong usage

`serve` ends with 0 when a signal stops it after it began to listen: that is how a service ends.
"""

import os
import signal
import sys
import types
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from steelyard.contract.errors import SteelyardError

__all__ = ["end_if_told_to", "print_error", "run_command"]

_SIGNALLED = 128


def run_command(command: Callable[[], object]) -> None:
    """Run `command`, which ends the process or returns; what it raises is told in words."""
    _fill_standard_streams()
    for number in _TerminationRequest.SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _termination)
    try:
        command()
    except SteelyardError as error:
        print_error(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(_termination.status or _SIGNALLED + signal.SIGINT)
    except SystemExit as ended:
        sys.exit(_termination.status or ended.code)
    except OSError as error:
        # What nothing on the way could say better: no room in a temporary folder, a full disk.
        print_error(_from_system(error))
        sys.exit(1)


def end_if_told_to() -> None:
    """End the command if SIGTERM was what interrupted it: for code that goes on after Ctrl-C."""
    if _termination.status is not None:
        raise SystemExit(_termination.status)


def print_error(error: SteelyardError) -> None:
    """Tell people on standard error what is wrong and what to do about it."""
    where = f"{error.param}: " if error.param else ""
    message = _printable(where + error.message.removesuffix("."))
    text = Text.assemble(("error: ", "bold red"), message)
    if error.fix:
        text.append(_printable(f"\nFix: {error.fix}"))
    Console(stderr=True, highlight=False, soft_wrap=True).print(text)


def _fill_standard_streams() -> None:
    """Have nothing of ours get the number of a stream that was closed, as with `2>&-`.

    What is printed would land there, and uvloop ends the process for it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


class _TerminationRequest:
    """SIGTERM, treated as Ctrl-C: whatever can clean up after the one does so after the other."""

    SIGNALS = (signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.status: int | None = None
        """Exit status it asks for; None until it comes."""

    def __call__(self, number: int, frame: types.FrameType | None) -> None:
        self.status = _SIGNALLED + number
        on_interrupt = signal.getsignal(signal.SIGINT)
        if callable(on_interrupt) and on_interrupt is not signal.default_int_handler:
            on_interrupt(signal.SIGINT, frame)  # an event loop runs, and cancels what runs in it
        else:
            raise SystemExit(self.status)


_termination = _TerminationRequest()


def _from_system(error: OSError) -> SteelyardError:
    where = None if error.filename is None else os.fsdecode(error.filename)
    return SteelyardError(error.strerror or str(error), param=where)


def _printable(text: str) -> str:
    """Without the control characters that a file name or a program's last words may hold."""
    return "".join(c if c == "\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

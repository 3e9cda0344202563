"""How an engine process ends, as its parent sees it.

Numbers follow `sysexits.h` where it has a word for the case. Whoever starts the process
(`fleet`) reads `is_final` to decide whether starting it again can help.
"""

import enum

__all__ = ["ExitCode"]


class ExitCode(enum.IntEnum):
    """Exit status of `python -m steelyard.engine.process`."""

    ENDED = 0
    """Asked to stop, and everything accepted was finished or handed back."""
    BAD_CHECKPOINT = 66
    """The model on disk cannot be used; the report names the file."""
    BAD_ADDRESS = 69
    """The address to listen on is taken or not allowed."""
    CRASHED = 70
    """A bug, or a failure the runner cannot survive; the traceback is on standard error."""
    BAD_CONFIG = 78
    """The configuration cannot work; the report names the field."""
    STALLED = 80
    """One step outlasted the watchdog; all stacks are on standard error."""
    ORPHANED = 81
    """The parent process is gone."""

    @property
    def is_final(self) -> bool:
        """True when a new start with the same configuration ends the same way."""
        return self in (ExitCode.BAD_CHECKPOINT, ExitCode.BAD_CONFIG)

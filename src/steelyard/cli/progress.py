"""Progress for people: a bar on a terminal, a line of the log everywhere else.

Bars stand on standard error and vanish when they are done, so that nothing of them is left in a
terminal, a file or a pipe.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:  # `--help` should not pay for them
    from steelyard.checkpoints import PullProgress, Report
    from steelyard.fleet.replica import ReplicaStatus

__all__ = ["EngineProgress", "file_progress"]

_log = logging.getLogger(__name__)

_STEPS = {
    "waiting": "Waiting for another pull of this model",
    "resolving": "Looking up",
    "downloading": "Downloading",
    "unpacking": "Unpacking",
    "verifying": "Verifying",
}


@contextlib.contextmanager
def file_progress(*, quiet: bool = False) -> "Iterator[Report]":
    """Follows files that are fetched or checked: call what it gives with every report."""
    bar = _Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        is_hidden=quiet,
    )
    shown = ("", "")

    def report(progress: "PullProgress") -> None:
        nonlocal shown
        if (progress.step, progress.file) != shown:
            shown = (progress.step, progress.file)
            what = f"{_STEPS[progress.step]} {progress.file}".rstrip()
            bar.begin(what)
            if not bar.is_wanted:
                _log.info("%s", what)
        bar.move(progress.done_bytes, progress.total_bytes)

    with bar.open():
        yield report


class EngineProgress:
    """Follows an engine's start: call it with every change of the replica.

    Logs nothing, because the engine process does.
    """

    def __init__(self) -> None:
        self._bar = _Bar(TextColumn("{task.description}"), BarColumn())

    def open(self) -> contextlib.AbstractContextManager[None]:
        """Outside this context, nothing is shown."""
        return self._bar.open()

    def __call__(self, status: "ReplicaStatus") -> None:
        if (progress := status.progress) is not None:
            self._bar.move(progress.share, 1.0, f"Starting the engine: {progress.what}")


class _Bar:
    """One bar, shown only inside `open`, and only where standard error is a terminal."""

    def __init__(self, *columns: ProgressColumn, is_hidden: bool = False) -> None:
        console = Console(stderr=True)
        self.is_wanted = console.is_terminal and not is_hidden
        self._is_open = False
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("", total=None)

    def begin(self, what: str) -> None:
        """Something else is being done now."""
        self._progress.reset(self._task, description=what)

    def move(self, done: float, total: float | None, what: str | None = None) -> None:
        """`total` None: not known. `what` None: the same as before."""
        if self._is_open and self.is_wanted:
            self._progress.start()  # does nothing the next time
        self._progress.update(self._task, completed=done, total=total, description=what)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = False
            if self._progress.live.is_started:  # stopping one that never began prints a line
                self._progress.stop()

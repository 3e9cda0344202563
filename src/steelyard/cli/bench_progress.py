"""What a measurement looks like while it runs: a line with live figures on a terminal.

Elsewhere one line of the log per run. The clients never wait for it: they report twice a second.
"""

import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from steelyard.lab.bench.session import Watcher
from steelyard.lab.client import Progress as ClientProgress
from steelyard.lab.report import report_of
from steelyard.lab.result import RunResult

__all__ = ["LiveProgress", "open_progress"]

_log = logging.getLogger(__name__)

_RECENT_ANSWERS = 200
"""That the shown latencies are made of."""
_RATE_OVER_S = 5.0
"""That tokens/s are averaged over."""


@contextlib.contextmanager
def open_progress(*, is_hidden: bool = False) -> Iterator[Watcher]:
    """A line on standard error that vanishes in the end."""
    console = Console(stderr=True)
    if is_hidden or not console.is_terminal:
        yield Watcher() if is_hidden else _LoggedProgress()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield LiveProgress(progress)


class _LoggedProgress(Watcher):
    """For logs and pipes."""

    def on_run(self, name: str, duration_s: float | None) -> None:
        length = "" if duration_s is None else f", {duration_s:.0f} s"
        _log.info("measuring %s%s", name or "a run", length)

    def on_end(self, result: RunResult) -> None:
        report = report_of(result)
        _log.info("%s: %s", report.title, report.verdict)


class LiveProgress(Watcher):
    """Sums up what all clients say. One series of runs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("Asking the server what it is", total=None, figures="")
        self._clear()

    def on_run(self, name: str, duration_s: float | None) -> None:
        self._clear()
        self._name = name or "Measuring"
        self._progress.reset(self._task, total=duration_s, description=self._name, figures="")

    def on_warm(self, prompts: int) -> None:
        self._progress.update(
            self._task, description=f"{self._name}: warming the cache with {prompts} prompts"
        )

    def on_begin(self, start_s: float) -> None:
        self._start_s = start_s
        self._progress.update(self._task, description=self._name)

    def on_progress(self, progress: ClientProgress) -> None:
        self._latest[progress.worker] = progress
        self._ttft_s.extend(progress.ttft_s)
        now_s = time.monotonic()
        self._tokens.append((now_s, sum(one.tokens for one in self._latest.values())))
        while now_s - self._tokens[0][0] > _RATE_OVER_S:
            self._tokens.popleft()
        elapsed_s = max(now_s - self._start_s, 0.0)
        self._progress.update(self._task, completed=elapsed_s, figures=self._figures(elapsed_s))

    def on_end(self, result: RunResult) -> None:
        report = report_of(result)
        self._progress.console.print(
            f"{report.title}: {report.verdict}", highlight=False, markup=False
        )

    def _clear(self) -> None:
        self._name = ""
        self._start_s = time.monotonic()
        self._latest: dict[int, ClientProgress] = {}
        self._ttft_s: deque[float] = deque(maxlen=_RECENT_ANSWERS)
        self._tokens: deque[tuple[float, int]] = deque()

    def _figures(self, elapsed_s: float) -> str:
        clients = self._latest.values()
        counts = {
            "in flight": sum(one.in_flight for one in clients),
            "waiting": sum(one.waiting for one in clients),
            "done": sum(one.complete for one in clients),
            "shed": sum(one.shed for one in clients),
            "failed": sum(one.failed for one in clients),
        }
        parts = [f"{elapsed_s:.0f} s"]
        parts += [f"{n} {what}" for what, n in counts.items() if n or what in ("in flight", "done")]
        (first_s, first), (last_s, last) = self._tokens[0], self._tokens[-1]
        if last_s > first_s:
            parts.append(f"{(last - first) / (last_s - first_s):.0f} tokens/s")
        if self._ttft_s:
            ordered = sorted(self._ttft_s)
            p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
            parts.append(f"TTFT {p50 * 1e3:.0f}/{p99 * 1e3:.0f} ms (P50/P99)")
        return "  ".join(parts)

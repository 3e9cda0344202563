"""From a model's name to its files, text model and progress bars: what every command needs first.

Runs before any event loop; Ctrl-C here simply ends the command.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from steelyard.checkpoints import Checkpoint, ModelStore, open_checkpoint, verify_checkpoint
from steelyard.cli.model import pull_progress
from steelyard.fleet.replica import ReplicaStatus
from steelyard.settings import Resolved
from steelyard.text.text_model import TextModel, open_text_model

__all__ = ["LoadedFiles", "engine_progress", "load_files"]

_VERIFIED_BYTES = 4 << 30
"""Larger models take many seconds to read twice; `steelyard model verify` does it on request."""


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """A model on disk, ready to be served."""

    checkpoint: Checkpoint
    text: TextModel


def load_files(resolved: Resolved) -> LoadedFiles:
    """Fetch the model unless it is there, check it, and open its text side.

    Raises `CheckpointError`, naming the file, for what cannot be fetched or is damaged.
    """
    store = ModelStore(resolved.cache_dir)
    with pull_progress() as report:
        path = store.pull(resolved.deployment.model, report)
        checkpoint = open_checkpoint(path)
        if checkpoint.weight_bytes <= _VERIFIED_BYTES:
            verify_checkpoint(checkpoint, report)
    return LoadedFiles(checkpoint, open_text_model(checkpoint))


@contextmanager
def engine_progress() -> Iterator[Callable[[ReplicaStatus], None]]:
    """A bar on standard error that follows an engine's start; it vanishes at the end."""
    columns = (TextColumn("{task.description}"), BarColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("Starting the engine", total=1.0)

    def show(status: ReplicaStatus) -> None:
        if status.progress is not None:
            what = f"Engine: {status.progress.what}"
            bar.update(task, completed=status.progress.share, description=what)

    with bar:
        yield show

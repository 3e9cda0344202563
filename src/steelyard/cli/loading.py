"""From a model's name to its files and text model: what every command needs first.

Runs before any event loop, so that Ctrl-C simply ends the command.
"""

from dataclasses import dataclass

from steelyard.checkpoints import Checkpoint, ModelStore, open_checkpoint, verify_checkpoint
from steelyard.cli.progress import file_progress
from steelyard.settings import Resolved
from steelyard.text.text_model import TextModel, open_text_model

__all__ = ["LoadedFiles", "load_files"]

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
    with file_progress() as report:
        path = store.pull(resolved.deployment.model, report)
        checkpoint = open_checkpoint(path)
        if checkpoint.weight_bytes <= _VERIFIED_BYTES:
            verify_checkpoint(checkpoint, report)
    return LoadedFiles(checkpoint, open_text_model(checkpoint))

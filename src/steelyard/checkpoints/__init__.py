"""Models on disk: finding, fetching, verifying and describing them, without torch.

Both the text side and the engine read from here (docs/decisions/0001).
"""

from steelyard.checkpoints.checkpoint import open_checkpoint
from steelyard.checkpoints.description import (
    Checkpoint,
    ModelDescription,
    SpecialTokens,
    TensorEntry,
    TokenizerFile,
)
from steelyard.checkpoints.gguf_vocabulary import GGUFVocabulary
from steelyard.checkpoints.progress import PullProgress, Report
from steelyard.checkpoints.store import ModelStore, StoredModel
from steelyard.checkpoints.verify import verify_checkpoint

__all__ = [
    "Checkpoint",
    "GGUFVocabulary",
    "ModelDescription",
    "ModelStore",
    "PullProgress",
    "Report",
    "SpecialTokens",
    "StoredModel",
    "TensorEntry",
    "TokenizerFile",
    "open_checkpoint",
    "verify_checkpoint",
]

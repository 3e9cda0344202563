"""What a family file is given to build a model from."""

from collections.abc import Callable
from dataclasses import dataclass

from steelyard.checkpoints.description import ModelDescription
from steelyard.models.layers.rotary import RotaryTable, build_rotary
from steelyard.models.ops.maker import MatrixMaker
from steelyard.models.ops.matrix import Embedding, Norm
from steelyard.models.weights.reader import WeightReader

__all__ = ["ModelParts", "Report"]

Report = Callable[[float, str], None]
"""Takes the share of loading done, in [0, 1], and what is being done."""


@dataclass(frozen=True, slots=True)
class ModelParts:
    """The model's description, its weights, and how matrices are made."""

    config: ModelDescription
    reader: WeightReader
    maker: MatrixMaker
    positions: int
    """Longest sequence that will be served."""
    report: Report

    def norm(self, name: str) -> Norm:
        """The RMS norm whose weights are `name`."""
        weight = self.reader.vector(name).to(self.maker.device)
        return Norm(weight, self.config.rms_norm_eps)

    def rotary(self) -> RotaryTable:
        """Tables as the configuration asks for."""
        config = self.config
        has_factors = self.reader.has("rope_freqs.weight")
        return build_rotary(
            head_size=config.head_dim,
            theta=config.rope_theta,
            scaling=config.rope_scaling,
            positions=self.positions,
            device=self.maker.device,
            factors=self.reader.vector("rope_freqs.weight") if has_factors else None,
        )

    def embedding_and_head(self) -> tuple[Embedding, Embedding]:
        """Both ends of the model; one object when their weights are tied."""
        embedding = self.maker.embedding(self.reader.matrix("model.embed_tokens.weight"))
        if self.config.tie_word_embeddings or not self.reader.has("lm_head.weight"):
            return embedding, embedding
        return embedding, self.maker.embedding(self.reader.matrix("lm_head.weight"))

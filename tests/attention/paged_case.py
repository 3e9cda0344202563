"""A paged KV cache filled with known keys and values, for both attention backends."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steelyard.engine.attention_backend import AttentionBackend
from steelyard.engine.kv_memory import KVPlan
from steelyard.engine.native_attention import NativeAttention
from steelyard.engine.reference_attention import ReferenceAttention
from steelyard.engine.step_batch import StepBatch
from steelyard.models.layers.attention import AttentionShape, Rotation
from steelyard.models.layers.rotary import build_rotary
from steelyard.models.native.interface import NativeKernels
from steelyard.models.ops.matrix import Norm
from steelyard.scheduling.config import GroupKind, KVGroup

POSITIONS = 2048
BLOCKS = 400


@dataclass
class Case:
    """One layer; sequences of the given lengths with blocks in a shuffled order."""

    shape: AttentionShape
    dtype: torch.dtype = torch.bfloat16
    block_tokens: int = 16
    lengths: tuple[int, ...] = (1, 5, 16, 17, 63, 64, 65, 130, 300)
    normed: bool = False
    qkv: list[Tensor] = field(init=False)
    """By sequence: float32 [length, width]."""
    table: NDArray[np.int32] = field(init=False)
    rotation: Rotation = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        shape = self.shape
        width = (shape.query_heads + 2 * shape.kv_heads) * shape.head_size
        self.qkv = [torch.randn(n, width, generator=generator) for n in self.lengths]
        columns = max(-(-n // self.block_tokens) for n in self.lengths)
        order = torch.randperm(BLOCKS - 1, generator=generator) + 1
        needed = len(self.lengths) * columns
        assert needed < BLOCKS
        self.table = order[:needed].view(len(self.lengths), columns).int().numpy()
        rotary = build_rotary(
            head_size=shape.head_size,
            theta=1e4,
            scaling=None,
            positions=POSITIONS,
            device=torch.device("cpu"),
        )
        norms = [Norm(torch.rand(shape.head_size) + 0.5, 1e-6) for _ in range(2)]
        self.rotation = Rotation(rotary, *norms) if self.normed else Rotation(rotary)

    @property
    def plan(self) -> KVPlan:
        window = self.shape.window_tokens
        kind = GroupKind.FULL if window is None else GroupKind.WINDOW
        group = KVGroup("only", kind, self.block_tokens, BLOCKS, window)
        return KVPlan((group,), ((0,),), 0, POSITIONS)

    def native(self, kernels: NativeKernels) -> AttentionBackend:
        backend = NativeAttention(kernels, [self.shape], self.plan, self.dtype)
        backend.bind((self.table,))
        return backend

    def reference(self) -> AttentionBackend:
        cpu = torch.device("cpu")
        backend = ReferenceAttention([self.shape], self.plan, self.dtype, cpu)
        backend.bind((self.table,))
        return backend

    def attend(self, backend: AttentionBackend, spans: list[tuple[int, int, int]]) -> list[Tensor]:
        """One step over (sequence, start, end) spans; outputs [tokens, heads * size] by span."""
        step = backend.open(self.batch(spans))
        qkv = torch.cat([self.qkv[i][start:end] for i, start, end in spans])
        sizes = [end - start for _, start, end in spans]
        return list(step.attend(0, qkv, self.rotation).split(sizes))

    def batch(self, spans: list[tuple[int, int, int]]) -> StepBatch:
        sizes = [end - start for _, start, end in spans]
        positions = np.concatenate([np.arange(start, end) for _, start, end in spans])
        return StepBatch(
            token_ids=torch.zeros(sum(sizes), dtype=torch.int64),
            sample_rows=torch.zeros(0, dtype=torch.int64),
            sampling=[],
            positions=positions.astype(np.int32),
            starts=np.cumsum([0, *sizes]).astype(np.int32),
            contexts=np.asarray([end for _, _, end in spans], dtype=np.int32),
            rows=np.asarray([i for i, _, _ in spans], dtype=np.int32),
        )

    def whole(self) -> list[tuple[int, int, int]]:
        """Every sequence from its first to its last token, in one step."""
        return [(i, 0, length) for i, length in enumerate(self.lengths)]

"""Computes steps with torch: loads the model, owns its KV, runs plans.

What a step contains is decided by `scheduling`; here it becomes tensors, logits and tokens.
"""

import logging
import time
from pathlib import Path

import torch
from torch import Tensor

from steelyard.checkpoints.checkpoint import open_checkpoint
from steelyard.checkpoints.description import Checkpoint
from steelyard.contract.errors import SettingsError
from steelyard.engine.attention_backend import AttentionBackend
from steelyard.engine.config import EngineConfig
from steelyard.engine.kv_memory import KVNeeds, KVPlan, plan_kv
from steelyard.engine.native_attention import NativeAttention, native_attention_fits
from steelyard.engine.reference_attention import ReferenceAttention
from steelyard.engine.runner_protocol import BlockTables, LoadedModel, ProgressReport
from steelyard.engine.sampler import draw_tokens
from steelyard.engine.step_batch import StepBatch, lay_out
from steelyard.engine.threads import resolve_threads
from steelyard.models.families.parts import ModelParts
from steelyard.models.layers.decoder import Decoder
from steelyard.models.native.build import KernelsUnavailable, load_kernels
from steelyard.models.native.interface import NativeKernels
from steelyard.models.ops.maker import MatrixMaker, Precision, choose_precision
from steelyard.models.registry import build_model
from steelyard.models.weights.reader import WeightReader
from steelyard.scheduling.step_plan import StepPlan, StepResult

__all__ = ["Runner"]

log = logging.getLogger(__name__)


class Runner:
    """`runner_protocol.StepRunner` on one device."""

    _model: Decoder
    _attention: AttentionBackend

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._device = _choose_device(config)
        self._native: NativeKernels | None = None

    def load(self, report: ProgressReport) -> LoadedModel:
        report(0.0, "reading the model's description")
        checkpoint = open_checkpoint(Path(self._config.checkpoint))
        self._set_up_threads()
        report(0.02, "loading the CPU kernels (compiled once, about half a minute)")
        self._native = self._find_kernels()
        precision = self._choose_precision(checkpoint)
        context_tokens = self._context_tokens(checkpoint)
        maker = MatrixMaker(precision, self._device, self._native)
        parts = ModelParts(
            config=checkpoint.config,
            reader=WeightReader(checkpoint),
            maker=maker,
            positions=context_tokens,
            report=lambda share, what: report(0.1 + 0.85 * share, f"loading {what}"),
        )
        self._model = build_model(checkpoint.architecture, parts)
        report(0.95, "allocating KV memory")
        dtype = self._kv_dtype(precision)
        kv = self._plan_kv(context_tokens, dtype)
        self._attention = self._make_attention(kv, dtype)
        return LoadedModel(
            context_tokens=kv.context_tokens,
            vocab_size=checkpoint.config.vocab_size,
            end_token_ids=checkpoint.config.eos_token_ids,
            groups=kv.groups,
            details=self._details(precision, kv, dtype),
        )

    def bind(self, tables: BlockTables) -> None:
        self._attention.bind(tables)

    def run(self, plan: StepPlan) -> StepResult:
        started_s = time.monotonic()
        batch = lay_out(plan)
        with torch.inference_mode():
            token_ids, logprobs = draw_tokens(self.logits(batch), batch.sampling)
        return StepResult(token_ids, logprobs, elapsed_s=time.monotonic() - started_s)

    def logits(self, batch: StepBatch) -> Tensor:
        """float32 [samples, vocabulary]; stores the batch's keys and values on the way."""
        return self._model.forward(
            batch.token_ids.to(self._device),
            batch.sample_rows.to(self._device),
            self._attention.open(batch),
        )

    # Choices that only this process can make.

    def _set_up_threads(self) -> None:
        # Every runtime gets its count explicitly: two that each take all cores fight for them.
        if self._device.type == "cpu":
            torch.set_num_threads(resolve_threads(self._config.threads))

    def _find_kernels(self) -> NativeKernels | None:
        """The compiled kernels, set up; None where they are not wanted or cannot be had."""
        wanted = self._config.kernels
        if wanted == "reference" or self._device.type != "cpu":
            return None
        try:
            kernels = load_kernels(Path(self._config.cache_dir))
        except KernelsUnavailable as error:
            if wanted == "native":
                raise SettingsError(
                    str(error), param="engine.kernels", fix="install a C++ compiler, or use auto"
                ) from error
            log.warning("using slow PyTorch operations: %s", error)
            return None
        kernels.set_threads(resolve_threads(self._config.threads))
        return kernels

    def _choose_precision(self, checkpoint: Checkpoint) -> Precision:
        wanted = self._config.precision
        if wanted == "auto":
            kinds = {
                entry.dtype
                for name, entry in checkpoint.tensors.items()
                if ".layers." in name and len(entry.shape) == 2
            }
            return choose_precision(kinds, device=self._device.type, native=self._native)
        if self._device.type != "cpu" and wanted in ("int8", "int4"):
            raise SettingsError(
                f"{wanted} weights run on CPUs only", param="weights.precision", fix="use bf16"
            )
        return wanted

    def _context_tokens(self, checkpoint: Checkpoint) -> int:
        limit = checkpoint.config.max_position_embeddings
        wanted = self._config.context_tokens or limit
        if wanted > limit:
            raise SettingsError(
                f"the model ends at {limit} tokens, {wanted} are asked for",
                param="engine.context_tokens",
                fix=f"use at most {limit}",
            )
        return wanted

    def _kv_dtype(self, precision: Precision) -> torch.dtype:
        wanted = self._config.kv_dtype
        if wanted == "auto":
            wanted = "fp32" if precision == "fp32" else "bf16"
        return torch.float32 if wanted == "fp32" else torch.bfloat16

    def _plan_kv(self, context_tokens: int, dtype: torch.dtype) -> KVPlan:
        config = self._config
        return plan_kv(
            KVNeeds(
                shapes=self._model.shapes,
                element_bytes=dtype.itemsize,
                block_tokens=config.block_tokens,
                context_tokens=context_tokens,
                context_is_fixed=config.context_tokens > 0,
                max_running=config.max_running,
                max_step_tokens=config.max_step_tokens,
                weight_bytes=self._model.bytes,
                kv_bytes=config.kv_bytes,
            )
        )

    def _make_attention(self, kv: KVPlan, dtype: torch.dtype) -> AttentionBackend:
        shapes = self._model.shapes
        if self._native is not None and native_attention_fits(shapes):
            return NativeAttention(self._native, shapes, kv, dtype)
        return ReferenceAttention(shapes, kv, dtype, self._device)

    def _details(self, precision: Precision, kv: KVPlan, dtype: torch.dtype) -> dict[str, str]:
        native = self._native
        return {
            "device": str(self._device),
            "threads": str(native.threads() if native else torch.get_num_threads()),
            "precision": precision,
            "kernels": "reference" if native is None else "native",
            "attention": self._attention.name,
            "weights_bytes": str(self._model.bytes),
            "kv_bytes": str(kv.total_bytes),
            "kv_dtype": "fp32" if dtype == torch.float32 else "bf16",
        }


def _choose_device(config: EngineConfig) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if config.device == "cuda" and not has_cuda:
        raise SettingsError("no CUDA device is visible", param="engine.device", fix="use cpu")
    wanted = "cuda" if config.device == "auto" and has_cuda else config.device
    return torch.device("cpu" if wanted == "auto" else wanted)

"""A runner without a model: made-up tokens, at a speed and with faults that a file describes.

For tests and drills of everything around the model: real processes, real sockets, the real
scheduler, but no weights and no torch. A token is a hash of the token before it, its position and
the seed, so a stream that is continued elsewhere goes on exactly as it would have here.
"""

import os
import random
import signal
import time
from pathlib import Path
from typing import Literal

import msgspec

from steelyard.contract import TokenLogprobs
from steelyard.contract.errors import CheckpointError
from steelyard.engine.config import EngineConfig
from steelyard.engine.runner_protocol import (
    BlockTables,
    LoadedModel,
    ProgressReport,
    RunnerError,
)
from steelyard.scheduling.config import GroupKind, KVGroup
from steelyard.scheduling.sequence import Sequence
from steelyard.scheduling.step_plan import StepPlan, StepResult

__all__ = ["FakeFault", "FakeModel", "FakeRunner", "fake_token"]

_LOAD_PARTS = 20
_WORD = (1 << 64) - 1


class FakeFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that goes wrong, once, in the step with this number (the first one is 1)."""

    step: int
    kind: Literal["fail", "raise", "hang", "die"]
    """`fail`: the step fails and the runner is sound. `raise`: a bug. `hang`: the step never
    ends. `die`: the process is gone without a word, as after an out-of-memory kill."""


class FakeModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The "checkpoint" of a fake runner, as a JSON document."""

    vocab_size: int = 256
    context_tokens: int = 4096
    kv_blocks: int = 1024
    end_token_id: int = 0
    """Never drawn, except as the `output_tokens`-th token."""
    output_tokens: int | None = None
    """Natural length of every completion; None: only the request's limits end one."""
    load_s: float = 0.0
    step_s: float = 0.0
    """What every step takes, and what is added for each token computed in it."""
    token_s: float = 0.0
    jitter: float = 0.0
    """Step times are multiplied by a seeded factor, uniform in [1 - jitter, 1 + jitter]."""
    faults: tuple[FakeFault, ...] = ()


class FakeRunner:
    """`runner_protocol.StepRunner` without torch."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._model = FakeModel()
        self._faults: dict[int, FakeFault] = {}
        self._jitter = random.Random(0)  # noqa: S311 (delays are no secret)
        self._step = 0

    def load(self, report: ProgressReport) -> LoadedModel:
        """Read the description; take as long as it says."""
        self._model = model = _read_model(Path(self._config.checkpoint))
        self._faults = {fault.step: fault for fault in model.faults}
        for part in range(_LOAD_PARTS if model.load_s else 0):
            report(part / _LOAD_PARTS, "pretending to load weights")
            time.sleep(model.load_s / _LOAD_PARTS)
        context_tokens = self._config.context_tokens or model.context_tokens
        blocks = KVGroup("full", GroupKind.FULL, self._config.block_tokens, model.kv_blocks)
        return LoadedModel(
            context_tokens=min(context_tokens, model.context_tokens),
            vocab_size=model.vocab_size,
            end_token_ids=(model.end_token_id,),
            groups=(blocks,),
            details={"runner": "fake"},
        )

    def bind(self, tables: BlockTables) -> None:
        """There is no KV to look up."""

    def run(self, plan: StepPlan) -> StepResult:
        """Draw a token per sampling slice, after the time the step takes."""
        started_s = time.monotonic()
        self._step += 1
        if fault := self._faults.get(self._step):
            _commit(fault)
        self._spend_time(plan)
        sampling = [piece.sequence for piece in plan.slices if piece.samples]
        token_ids = [self._draw(sequence) for sequence in sampling]
        return StepResult(
            token_ids=token_ids,
            logprobs=[_logprobs(*drawn) for drawn in zip(sampling, token_ids, strict=True)],
            elapsed_s=time.monotonic() - started_s,
        )

    def _spend_time(self, plan: StepPlan) -> None:
        model = self._model
        duration_s = model.step_s + model.token_s * plan.tokens
        if duration_s > 0:
            time.sleep(duration_s * self._jitter.uniform(1 - model.jitter, 1 + model.jitter))

    def _draw(self, sequence: Sequence) -> int:
        model = self._model
        position = sequence.output_start
        if model.output_tokens is not None and position + 1 >= model.output_tokens:
            return model.end_token_id
        seed = 0 if sequence.sampling.is_greedy else sequence.sampling.seed
        return fake_token(model, seed=seed, previous=sequence.token_ids[-1], position=position)


def fake_token(model: FakeModel, *, seed: int, previous: int, position: int) -> int:
    """The token at `position` of a completion, after the token `previous`; seed 0 when greedy.

    Mixes with the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
    """
    word = (seed * 0x9E3779B97F4A7C15 + previous * 0xD1B54A32D192ED03 + position + 1) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    token = (word ^ (word >> 31)) % (model.vocab_size - 1)
    return token + 1 if token >= model.end_token_id else token


def _read_model(path: Path) -> FakeModel:
    try:
        model = msgspec.json.decode(path.read_bytes(), type=FakeModel)
    except OSError as error:
        raise CheckpointError(str(error.strerror), param=str(path)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(
            f"no description of a fake model: {error}", param=str(path)
        ) from error
    if model.vocab_size < 2 or not 0 <= model.end_token_id < model.vocab_size:
        raise CheckpointError("the end token is outside the vocabulary", param=str(path))
    return model


def _commit(fault: FakeFault) -> None:
    match fault.kind:
        case "fail":
            raise RunnerError("the fake model was told to fail")
        case "raise":
            raise RuntimeError("the fake model was told to raise")
        case "hang":
            while True:
                time.sleep(3600)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)


def _logprobs(sequence: Sequence, token_id: int) -> TokenLogprobs | None:
    """Certainty: the drawn token, and nothing else, was possible."""
    if sequence.sampling.logprobs is None:
        return None
    return (
        TokenLogprobs(0.0, (token_id,), (0.0,))
        if sequence.sampling.logprobs
        else TokenLogprobs(0.0)
    )

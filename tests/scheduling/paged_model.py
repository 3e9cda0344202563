"""A runner that keeps its word about memory, and a driver that keeps the scheduler to its own.

`PagedModel` stores, for every token it computes, what its KV would depend on (the whole prefix)
in exactly the block and slot that the block tables name, and before it draws a token it reads
back everything attention would read. A block that was shared, reused or given back wrongly is
therefore seen at once, and equal prefixes give equal tokens whatever the interleaving.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from steelyard.contract import GenerateRequest, SamplingParams, TokenChunk, Usage
from steelyard.contract.errors import SteelyardError
from steelyard.scheduling.config import GroupKind, KVGroup, SchedulerConfig
from steelyard.scheduling.scheduler import Scheduler
from steelyard.scheduling.sequence import Sequence
from steelyard.scheduling.step_plan import Slice, StepPlan, StepResult

VOCAB = 50
END_TOKEN = 49
ROOT = 1


def full(blocks: int, block_tokens: int = 4, name: str = "full") -> KVGroup:
    return KVGroup(name, GroupKind.FULL, block_tokens, blocks)


def window(blocks: int, window_tokens: int, block_tokens: int = 4) -> KVGroup:
    return KVGroup("window", GroupKind.WINDOW, block_tokens, blocks, window_tokens)


def compressed(blocks: int, block_tokens: int = 8) -> KVGroup:
    return KVGroup("compressed", GroupKind.COMPRESSED, block_tokens, blocks)


def state(blocks: int, block_tokens: int = 4) -> KVGroup:
    return KVGroup("state", GroupKind.STATE, block_tokens, blocks)


def request(
    request_id: str, prompt_ids: Iterable[int], max_tokens: int = 4, **rest: Any
) -> GenerateRequest:
    """A request; fields of `SamplingParams` and of `GenerateRequest` by name."""
    known = SamplingParams.__struct_fields__
    sampling = {name: rest.pop(name) for name in list(rest) if name in known}
    return GenerateRequest(
        request_id=request_id,
        prompt_ids=tuple(prompt_ids),
        sampling=SamplingParams(max_tokens=max_tokens, **sampling),
        **rest,
    )


def next_digest(digest: int, token: int) -> int:
    """Identifies a prefix by the one before it and its last token."""
    return hash((digest, token)) & 0xFFFFFFFF


def expected_stream(asked: GenerateRequest) -> tuple[list[int], str]:
    """The completion a model computing one request alone, without any cache, would produce."""
    digest = ROOT
    for token in asked.prompt_ids:
        digest = next_digest(digest, token)
    sampling = asked.sampling
    stops = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else {END_TOKEN})
    tokens: list[int] = []
    while len(tokens) < sampling.max_tokens:
        token = digest % VOCAB
        tokens.append(token)
        if token in stops and len(tokens) > sampling.min_tokens:
            return tokens, "stop"
        digest = next_digest(digest, token)
    return tokens, "length"


class PagedModel:
    """KV memory as dictionaries: group → (block, slot) → (position, digest of the prefix)."""

    def __init__(self, groups: list[KVGroup], scheduler: Scheduler) -> None:
        self._groups = groups
        self._tables = scheduler.block_tables
        self._memory: list[dict[tuple[int, int], tuple[int, int]]] = [{} for _ in groups]

    def run(self, plan: StepPlan) -> StepResult:
        digests = {id(piece): _digests(piece.sequence) for piece in plan.slices}
        # All writes come first, as in a real step; a block in two hands is overwritten here.
        for piece in plan.slices:
            for index, group in enumerate(self._groups):
                self._write(index, group, piece, digests[id(piece)])
        for piece in plan.slices:
            for index, group in enumerate(self._groups):
                self._read(index, group, piece, digests[id(piece)])
        drawn = [digests[id(piece)][-1] % VOCAB for piece in plan.slices if piece.samples]
        return StepResult(token_ids=drawn, logprobs=[None] * len(drawn), elapsed_s=0.01)

    def _write(self, index: int, group: KVGroup, piece: Slice, digests: list[int]) -> None:
        end = piece.start + piece.count
        if group.kind is GroupKind.STATE:
            if piece.start:
                self._expect(index, group, piece, piece.start - 1, digests)
            self._store(index, group, piece.sequence, end - 1, digests)
            return
        for position in range(piece.start, end):
            self._store(index, group, piece.sequence, position, digests)

    def _read(self, index: int, group: KVGroup, piece: Slice, digests: list[int]) -> None:
        if group.kind is GroupKind.STATE:
            return
        first = 0
        if group.window_tokens is not None:
            first = max(0, piece.start - group.window_tokens + 1)
        for position in range(first, piece.start + piece.count):
            self._expect(index, group, piece, position, digests)

    def _store(
        self, index: int, group: KVGroup, sequence: Sequence, position: int, digests: list[int]
    ) -> None:
        place = self._place(index, group, sequence, position)
        assert place[0] != 0, "a token would be written to the null block"
        self._memory[index][place] = (position, digests[position])

    def _expect(
        self, index: int, group: KVGroup, piece: Slice, position: int, digests: list[int]
    ) -> None:
        place = self._place(index, group, piece.sequence, position)
        found = self._memory[index].get(place)
        assert found == (position, digests[position]), (
            f"{piece} of group {group.name} reads {found} at position {position}"
        )

    def _place(
        self, index: int, group: KVGroup, sequence: Sequence, position: int
    ) -> tuple[int, int]:
        column, slot = divmod(position, group.block_tokens)
        block = int(self._tables[index][sequence.row, column])
        return block, 0 if group.kind is GroupKind.STATE else slot


def _digests(sequence: Sequence) -> list[int]:
    digests, digest = [], ROOT
    for token in sequence.token_ids:
        digest = next_digest(digest, token)
        digests.append(digest)
    return digests


class Driver:
    """Steps a scheduler and checks everything it promises about each single step."""

    def __init__(self, groups: list[KVGroup], **settings: Any) -> None:
        settings = {"context_tokens": 64, "memory_threshold": 1.0, **settings}
        self.config = SchedulerConfig(**settings)
        self.scheduler = Scheduler(self.config, groups, end_token_ids=(END_TOKEN,))
        self.model = PagedModel(groups, self.scheduler)
        self.now_s = 0.0
        self.asked: dict[str, GenerateRequest] = {}
        self.streams: dict[str, list[int]] = {}
        self.reasons: dict[str, str] = {}
        self.usages: dict[str, Usage] = {}
        self.failures: dict[str, SteelyardError] = {}
        self.aborted: set[str] = set()
        self.chunks: list[TokenChunk] = []
        self.computed: dict[str, list[tuple[int, int]]] = {}
        """Request id → the (start, end) of every slice applied for it."""
        self.preemptions: dict[str, int] = {}
        self.computed_tokens = 0

    def submit(self, asked: GenerateRequest) -> None:
        self.scheduler.submit(asked, self.now_s)
        self.asked[asked.request_id] = asked
        self.streams[asked.request_id] = list(asked.emitted_ids)
        self.computed[asked.request_id] = []

    def abort(self, request_id: str) -> bool:
        found = self.scheduler.abort(request_id)
        if found:
            self.aborted.add(request_id)
        return found

    def plan(self) -> StepPlan:
        plan = self.scheduler.plan(self.now_s)
        self.scheduler.check_integrity()
        self._check_plan(plan)
        return plan

    def apply(self, plan: StepPlan) -> None:
        self.take(plan, self.model.run(plan))

    def take(self, plan: StepPlan, result: StepResult) -> None:
        """Apply the result of a plan and check what comes of it."""
        for piece in plan.slices:
            if piece.sequence.is_running:
                span = (piece.start, piece.start + piece.count)
                self.computed[piece.sequence.request_id].append(span)
                self.preemptions[piece.sequence.request_id] = piece.sequence.preemptions
        self.computed_tokens += plan.tokens
        outcome = self.scheduler.apply(plan, result, self.now_s)
        self.scheduler.check_integrity()
        for chunk in outcome.chunks:
            self._take_chunk(chunk)
        for request_id, error in outcome.failures:
            self._check_open(request_id)
            self.failures[request_id] = error

    def step(self) -> StepPlan:
        plan = self.plan()
        self.apply(plan)
        self.now_s += 0.01
        return plan

    def run_until_idle(self, limit: int = 3000) -> int:
        """Steps until nothing is live; returns how many it took."""
        for steps in range(limit):
            if not self.scheduler.has_work:
                return steps
            self.step()
        raise AssertionError(f"still working after {limit} steps")

    def live(self, request_id: str) -> Sequence:
        everybody = [*self.scheduler.running, *self.scheduler.waiting]
        return next(s for s in everybody if s.request_id == request_id)

    def check_complete(self) -> None:
        """Every request ended exactly once, and streams are what a lone model would say."""
        for request_id, asked in self.asked.items():
            ends = (request_id in self.reasons, request_id in self.failures)
            assert sum(ends) + (request_id in self.aborted) == 1, (request_id, ends)
            tokens, reason = expected_stream(asked)
            if request_id in self.reasons:
                assert (self.streams[request_id], self.reasons[request_id]) == (tokens, reason)
                self._check_accounts(request_id, len(asked.prompt_ids), len(tokens))
            else:
                assert self.streams[request_id] == tokens[: len(self.streams[request_id])]
        assert self.scheduler.status_counters.kv_blocks_used == 0
        assert self.scheduler.status_counters.computed_tokens_total == self.computed_tokens

    def _check_accounts(self, request_id: str, prompt_tokens: int, output_tokens: int) -> None:
        """Every token was found or computed, and usage says which."""
        usage, spans = self.usages[request_id], self.computed[request_id]
        if not spans:
            assert output_tokens == len(self.asked[request_id].emitted_ids)
            return
        found = spans[0][0]
        assert usage == Usage(prompt_tokens, output_tokens, min(found, prompt_tokens))
        assert spans[-1][1] == prompt_tokens + output_tokens - 1
        jumps = sum(start != end for (_, end), (start, _) in pairwise(spans))
        assert jumps <= self.preemptions[request_id], "a token was skipped or computed again"

    def _check_plan(self, plan: StepPlan) -> None:
        scheduler, config = self.scheduler, self.config
        assert plan.is_empty == (not scheduler.running)
        assert plan.tokens == sum(piece.count for piece in plan.slices) <= config.max_step_tokens
        planned = [piece.sequence for piece in plan.slices]
        assert len(planned) == len(set(map(id, planned)))
        if planned:
            # Nobody preempts in circles: the first in order gets on in every single step.
            assert scheduler.running[0] in planned
        for piece in plan.slices:
            sequence = piece.sequence
            assert piece.start == sequence.computed_tokens and piece.count >= 1
            assert piece.samples == (piece.start + piece.count == len(sequence.token_ids))

    def _take_chunk(self, chunk: TokenChunk) -> None:
        self._check_open(chunk.request_id)
        stream = self.streams[chunk.request_id]
        assert chunk.start == len(stream), "a token is lost or repeated"
        stream.extend(chunk.token_ids)
        self.chunks.append(chunk)
        is_first_or_last = chunk.start == 0 or chunk.finish_reason is not None
        assert is_first_or_last == (chunk.usage is not None)
        if chunk.finish_reason is not None and chunk.usage is not None:
            self.reasons[chunk.request_id] = chunk.finish_reason
            self.usages[chunk.request_id] = chunk.usage

    def _check_open(self, request_id: str) -> None:
        ended = (self.reasons, self.failures, self.aborted)
        assert not any(request_id in where for where in ended), f"{request_id} ended twice"

"""Runs requests through a real runner and scheduler, in this process."""

import time
from dataclasses import replace
from pathlib import Path

from steelyard.contract import GenerateRequest, SamplingParams, TokenChunk
from steelyard.engine.config import EngineConfig
from steelyard.engine.runner import Runner
from steelyard.scheduling.config import SchedulerConfig
from steelyard.scheduling.scheduler import Scheduler
from steelyard.scheduling.step_plan import StepResult

__all__ = ["EngineRun", "greedy"]


class EngineRun:
    """A loaded model; every `generate` starts with an empty scheduler unless told otherwise."""

    def __init__(self, checkpoint: Path, cache_dir: Path, **options: object) -> None:
        config = EngineConfig(
            checkpoint=str(checkpoint),
            model="test",
            listen="",
            cache_dir=str(cache_dir),
            **{"kv_bytes": 192 << 20, "threads": 1, **options},  # type: ignore[arg-type]
        )
        self.runner = Runner(config)
        self.loaded = self.runner.load(lambda share, what: None)
        self.scheduler = self.new_scheduler()

    def new_scheduler(self, **options: object) -> Scheduler:
        """Forget all cached KV; `options` change the scheduler's configuration."""
        config = SchedulerConfig(context_tokens=self.loaded.context_tokens)
        config = replace(config, **options)  # type: ignore[arg-type]
        self.scheduler = Scheduler(config, self.loaded.groups, self.loaded.end_token_ids)
        self.runner.bind(self.scheduler.block_tables)
        return self.scheduler

    def generate(self, requests: list[GenerateRequest]) -> dict[str, list[TokenChunk]]:
        """All chunks by request, everything submitted at once."""
        chunks: dict[str, list[TokenChunk]] = {request.request_id: [] for request in requests}
        for request in requests:
            self.scheduler.submit(request, time.monotonic())
        while self.scheduler.has_work:
            plan = self.scheduler.plan(time.monotonic())
            result = StepResult.nothing() if plan.is_empty else self.runner.run(plan)
            outcome = self.scheduler.apply(plan, result, time.monotonic())
            assert not outcome.failures
            for chunk in outcome.chunks:
                chunks[chunk.request_id].append(chunk)
        return chunks

    def tokens(self, requests: list[GenerateRequest]) -> list[list[int]]:
        """The tokens of each request, in order."""
        chunks = self.generate(requests)
        return [
            [token for chunk in chunks[request.request_id] for token in chunk.token_ids]
            for request in requests
        ]


def greedy(name: str, prompt: list[int] | tuple[int, ...], count: int) -> GenerateRequest:
    """A request for exactly `count` greedy tokens."""
    sampling = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)
    return GenerateRequest(request_id=name, prompt_ids=tuple(prompt), sampling=sampling)

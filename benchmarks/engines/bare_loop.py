"""The bare engine: scheduler and runner called in a loop, without process borders or a door.

    python -m benchmarks.engines.bare_loop MODEL.gguf --set KEY=VALUE …

Takes the client's jobs on standard input and answers with the same reports, so that a served run
and a bare one differ in nothing but what is between them. Text is not made; `token_ids` are.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from benchmarks.engines.jobs import Ask, ClientReport, Job, Stream

from steelyard.checkpoints import open_checkpoint
from steelyard.cli.wiring import engine_config
from steelyard.contract import GenerateRequest, SamplingParams, TokenChunk
from steelyard.engine.config import EngineConfig
from steelyard.engine.process import scheduler_config
from steelyard.engine.runners import create_runner
from steelyard.engine.threads import resolve_threads, thread_environment
from steelyard.scheduling.scheduler import Scheduler
from steelyard.scheduling.step_plan import StepResult
from steelyard.settings import resolve

__all__ = ["main"]


def main() -> None:
    """Load, say so with an empty line, then serve jobs until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="sets")
    options = parser.parse_args()
    resolved = resolve(sets=options.sets)
    config = engine_config(resolved, open_checkpoint(options.model), "unix:/nowhere")
    os.environ.update(thread_environment(resolve_threads(config.threads)))
    loop = _BareLoop(config)
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        report = loop.run(msgspec.json.decode(line, type=Job))
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()


class _BareLoop:
    """One model in memory; requests of one job at a time."""

    def __init__(self, config: EngineConfig) -> None:
        self._runner = create_runner(config)
        model = self._runner.load(lambda _share, _what: None)
        gc.freeze()  # as the engine process does
        self._scheduler = Scheduler(
            scheduler_config(config, model), model.groups, model.end_token_ids
        )
        self._runner.bind(self._scheduler.block_tables)
        self._submitted = 0
        self._live: dict[str, tuple[Stream, Iterator[Ask]]] = {}

    def run(self, job: Job) -> ClientReport:
        """As the client would: each worker's next ask starts when its last one has ended."""
        streams: list[Stream] = []
        cpu_s, began_s = time.process_time(), time.monotonic()
        for number, worker in enumerate(job.workers):
            assert worker.start_after_events == 0, "not supported here"
            self._submit(number, iter(worker.asks), streams)
        scheduler, runner = self._scheduler, self._runner
        while scheduler.has_work:
            plan = scheduler.plan(time.monotonic())
            result = StepResult.nothing() if plan.is_empty else runner.run(plan)
            outcome = scheduler.apply(plan, result, time.monotonic())
            assert not outcome.failures, outcome.failures
            for chunk in outcome.chunks:
                self._take(chunk, streams)
        elapsed_s = time.monotonic() - began_s
        return ClientReport(
            streams, cpu_s=time.process_time() - cpu_s, wait_s=0.0, wakeups=0, elapsed_s=elapsed_s
        )

    def _submit(self, worker: int, asks: Iterator[Ask], streams: list[Stream]) -> None:
        ask = next(asks, None)
        if ask is None:
            return
        self._submitted += 1
        request_id = f"bare-{self._submitted}"
        request = GenerateRequest(
            request_id=request_id,
            prompt_ids=tuple(ask.prompt_ids),
            sampling=SamplingParams(max_tokens=ask.max_tokens, temperature=0.0, ignore_eos=True),
        )
        stream = Stream(worker=worker, sent_ns=time.monotonic_ns(), token_ns=[], token_ids=[])
        streams.append(stream)
        self._live[request_id] = (stream, asks)
        self._scheduler.submit(request, time.monotonic())

    def _take(self, chunk: TokenChunk, streams: list[Stream]) -> None:
        stream, asks = self._live[chunk.request_id]
        now_ns = time.monotonic_ns()
        stream.token_ns += [now_ns] * len(chunk.token_ids)
        stream.token_ids += chunk.token_ids
        if chunk.finish_reason is None:
            return
        assert chunk.usage is not None
        stream.end_ns = now_ns
        stream.prompt_tokens = chunk.usage.prompt_tokens
        stream.completion_tokens = chunk.usage.completion_tokens
        stream.cached_tokens = chunk.usage.cached_tokens
        del self._live[chunk.request_id]
        self._submit(stream.worker, asks, streams)


if __name__ == "__main__":
    main()

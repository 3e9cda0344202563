"""With the native kernels a stream's bits do not depend on what else the engine is doing.

Every kernel sums a row in an order that depends on the row alone, so batching, chunking, caching
and preemption cannot move a single bit. This is what makes failover exact.
"""

import random
from pathlib import Path

import pytest
import torch

from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.engine.step_batch import lay_out
from tests.models.engine_run import EngineRun, greedy

LENGTHS = (1, 15, 16, 17, 70, 130, 300, 5, 64, 33)


@pytest.fixture(
    scope="module", params=["int4", pytest.param("int8", marks=pytest.mark.slow), "bf16"]
)
def engine(request: pytest.FixtureRequest, smollm2_path: Path, cache_dir: Path) -> EngineRun:
    return EngineRun(smollm2_path, cache_dir, precision=request.param, kernels="native")


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    rng = random.Random(4)
    return [[rng.randrange(100, 40_000) for _ in range(length)] for length in LENGTHS]


def sampled(name: str, prompt: list[int], count: int) -> GenerateRequest:
    sampling = SamplingParams(max_tokens=count, seed=7, temperature=1.0, top_p=0.9, ignore_eos=True)
    return GenerateRequest(request_id=name, prompt_ids=tuple(prompt), sampling=sampling)


@pytest.mark.parametrize("request_of", [pytest.param(greedy, marks=pytest.mark.slow), sampled])
def test_batches_chunks_and_cache_change_no_token(
    engine: EngineRun, prompts: list[list[int]], request_of: type
) -> None:
    engine.new_scheduler()
    together = engine.tokens([request_of(f"t{i}", p, 12) for i, p in enumerate(prompts)])
    cached = engine.tokens([request_of(f"c{i}", p, 12) for i, p in enumerate(prompts)])
    engine.new_scheduler()
    alone = [engine.tokens([request_of(f"a{i}", p, 12)])[0] for i, p in enumerate(prompts)]
    engine.new_scheduler(max_step_tokens=24, prefix_cache=False)
    chunked = engine.tokens([request_of(f"k{i}", p, 12) for i, p in enumerate(prompts)])
    assert together == cached == alone == chunked


def test_a_continued_stream_goes_on_as_if_it_had_never_stopped(
    engine: EngineRun, prompts: list[list[int]]
) -> None:
    engine.new_scheduler()
    whole = engine.tokens([sampled("whole", prompts[4], 20)])[0]
    engine.new_scheduler()
    request = sampled("rest", prompts[4], 20)
    continued = GenerateRequest(
        request_id="rest",
        prompt_ids=request.prompt_ids,
        sampling=request.sampling,
        emitted_ids=tuple(whole[:9]),
    )
    assert engine.tokens([continued])[0] == whole[9:]


def test_logits_have_the_same_bits_in_a_prefill_and_in_a_decode(
    engine: EngineRun, prompts: list[list[int]]
) -> None:
    prompt = prompts[5]
    scheduler = engine.new_scheduler()
    scheduler.submit(greedy("all", prompt, 1), 0.0)
    with torch.inference_mode():
        at_once = engine.runner.logits(lay_out(scheduler.plan(0.0)))[0]
    scheduler = engine.new_scheduler(max_step_tokens=len(prompt) - 1)
    scheduler.submit(greedy("cut", prompt, 1), 0.0)
    plan = scheduler.plan(0.0)
    scheduler.apply(plan, engine.runner.run(plan), 0.0)
    with torch.inference_mode():
        last = engine.runner.logits(lay_out(scheduler.plan(0.0)))[0]
    assert torch.equal(at_once, last)

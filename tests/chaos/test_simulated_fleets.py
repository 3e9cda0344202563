"""Stories of fleets whose replicas fail at random: what must hold holds, and stories repeat."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from benchmarks.failover import simulated_fleet
from benchmarks.failover.simulated_fleet import Scale, simulate

from steelyard.contract import GenerateRequest, TokenChunk

SMALL = Scale(replicas=60, requests=80, faults=40, span_s=5.0)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_repeated_leaked_or_forgotten(seed: int) -> None:
    outcome = simulate(seed, SMALL)
    assert outcome.ends.total() == SMALL.requests
    assert outcome.ends["finished"] > 0.6 * SMALL.requests
    assert outcome.moves > 0, "a story in which nothing happens proves nothing"


def test_a_seed_tells_the_same_story_again() -> None:
    assert simulate(7, SMALL) == simulate(7, SMALL)
    assert simulate(7, SMALL).digest != simulate(8, SMALL).digest


def test_a_gateway_that_repeats_a_token_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stutterer(simulated_fleet.FailoverEngine):
        async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
            async for chunk in super().generate(request):
                yield chunk
                if chunk.start == 5:
                    yield chunk

    monkeypatch.setattr(simulated_fleet, "FailoverEngine", Stutterer)
    with pytest.raises(AssertionError, match="repeated"):
        simulate(0, SMALL)


def test_a_gateway_that_forgets_somebody_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sleeper(simulated_fleet.FailoverEngine):
        async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
            if request.request_id == "r3":
                await asyncio.sleep(1e9)
            async for chunk in super().generate(request):
                yield chunk

    monkeypatch.setattr(simulated_fleet, "FailoverEngine", Sleeper)
    with pytest.raises(AssertionError, match="forgotten"):
        simulate(0, SMALL)

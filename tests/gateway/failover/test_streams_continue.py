"""A replica fails in the middle of a stream: nothing is lost, repeated or changed."""

import asyncio

import pytest

from steelyard.contract import SamplingParams, Usage
from steelyard.contract.errors import EngineFailed, EngineLost, Quarantined

from .world import World, ask, in_world


def test_killing_one_of_three_under_sixty_streams_fails_none() -> None:
    async def scenario(world: World) -> None:
        tasks = world.begin_many(60, max_tokens=100)
        await asyncio.sleep(0.7)
        victim = world.engines[1]
        moved = victim.live
        assert moved > 10
        victim.kill()
        results = [result.check() for result in await asyncio.gather(*tasks)]
        assert max(result.largest_gap_s for result in results) < 0.2
        assert (
            world.metric('steelyard_failover_moves_total{reason="engine_lost",stage="streaming"}')
            == moved
        )
        world.check_idle()

    in_world(scenario)


def test_a_frozen_replica_costs_one_stall_and_no_token() -> None:
    async def scenario(world: World) -> None:
        tasks = world.begin_many(30, max_tokens=200)
        await asyncio.sleep(0.7)
        world.engines[2].freeze()
        results = [result.check() for result in await asyncio.gather(*tasks)]
        gaps = sorted(result.largest_gap_s for result in results)
        assert 1.0 <= gaps[-1] <= 1.0 + 0.3
        assert gaps[15] < 0.1, "streams of the others go on undisturbed"
        assert world.state(2) == "ejected"
        world.check_idle()

    in_world(scenario)


@pytest.mark.parametrize("error", [EngineLost("reset"), EngineFailed("step failed")])
def test_one_stream_that_breaks_goes_on_elsewhere(error: EngineLost | EngineFailed) -> None:
    async def scenario(world: World) -> None:
        for engine in world.engines:
            engine.fails_next, engine.fails_after = [error], 7
        (await world.run(ask())).check()
        world.check_idle()

    in_world(scenario)


def test_sampled_streams_continue_with_the_tokens_they_would_have_had() -> None:
    async def scenario(world: World) -> None:
        sampling = SamplingParams(max_tokens=80, temperature=0.9, seed=42)
        task = world.begin(ask(sampling=sampling))
        await asyncio.sleep(0.5)
        world.host("r").kill()
        (await task).check()

    in_world(scenario)


def test_usage_is_what_it_would_have_been_without_the_failure() -> None:
    async def scenario(world: World) -> Usage | None:
        prompt = tuple(range(64))
        await world.run(ask("warm", prompt=prompt))  # its replica has the prompt in its cache
        task = world.begin(ask("r", prompt=prompt, max_tokens=60))
        await asyncio.sleep(0.5)
        world.host("r").kill()
        return (await task).check().usage

    assert in_world(scenario) == Usage(prompt_tokens=64, completion_tokens=60, cached_tokens=64)


def test_cached_tokens_are_those_of_the_replica_that_brought_the_first_token() -> None:
    async def scenario(world: World) -> None:
        prompt = tuple(range(64))
        for engine in world.engines[1:]:
            await engine.warm([prompt])
        first = world.engines[0]
        for index in (1, 2):
            world.failover.want(f"a/{index}", False)
        task = world.begin(ask("r", prompt=prompt, max_tokens=60))
        await asyncio.sleep(0.5)
        for index in (1, 2):
            world.failover.want(f"a/{index}", True)
        assert world.host("r") is first
        first.kill()
        usage = (await task).check().usage
        assert usage is not None and usage.cached_tokens == 0

    in_world(scenario)


def test_logprobs_and_finish_reason_come_along() -> None:
    async def scenario(world: World) -> None:
        sampling = SamplingParams(max_tokens=60, temperature=0.0, logprobs=0)
        task = world.begin(ask(sampling=sampling))
        await asyncio.sleep(0.5)
        world.host("r").kill()
        result = (await task).check()
        values = [value.logprob for chunk in result.chunks for value in chunk.logprobs or ()]
        assert values == [-float(index) for index in range(60)]
        assert [chunk.finish_reason for chunk in result.chunks[-2:]] == [None, "length"]

    in_world(scenario)


def test_a_replica_that_skips_or_repeats_tokens_is_not_believed() -> None:
    async def scenario(world: World) -> None:
        for engine in world.engines[:2]:
            engine.garbles_next = 1
        (await world.run(ask())).check()
        world.check_idle()

    in_world(scenario)


def test_a_stream_outlives_every_replica_one_after_the_other() -> None:
    async def scenario(world: World) -> None:
        task = world.begin(ask(max_tokens=300))
        victims = set()
        for _ in range(3):
            await asyncio.sleep(0.8)
            victim = world.host("r")
            victims.add(victim.name)
            victim.kill()
            await asyncio.sleep(0.4)
            victim.revive()
        (await task).check()
        assert len(victims) == 3
        world.check_idle()

    in_world(scenario)


def test_a_stream_that_was_alone_at_four_deaths_in_a_row_is_taken_for_their_cause() -> None:
    async def scenario(world: World) -> None:
        task = world.begin(ask(max_tokens=600))
        for _ in range(4):
            await asyncio.sleep(0.8)
            victim = world.host("r")
            victim.kill()
            await asyncio.sleep(0.4)
            victim.revive()
        result = await task
        result.check_prefix()
        assert isinstance(result.error, Quarantined)
        world.check_idle()

    in_world(scenario)


def test_the_only_replica_dies_and_its_streams_wait_for_its_successor() -> None:
    async def scenario(world: World) -> None:
        tasks = world.begin_many(5, max_tokens=100)
        await asyncio.sleep(0.5)
        world.engines[0].kill()
        await asyncio.sleep(4.0)
        world.engines[0].revive()
        for result in await asyncio.gather(*tasks):
            assert 4.0 <= result.check().largest_gap_s <= 5.0
        world.check_idle()

    in_world(scenario, replicas=1)


def test_a_stream_that_nobody_can_continue_ends_with_an_error_not_silently() -> None:
    async def scenario(world: World) -> None:
        task = world.begin(ask(max_tokens=1000))
        await asyncio.sleep(0.5)
        for engine in world.engines:
            engine.kill()
        result = await task
        result.check_prefix()
        assert result.error is not None and result.error.code == "engine_starting"
        assert not result.is_finished and len(result.ids) > 10
        world.check_idle()

    in_world(scenario)


def test_endpoints_that_only_speak_text_cannot_continue_and_say_so() -> None:
    async def scenario(world: World) -> None:
        task = world.begin(ask(max_tokens=100))
        await asyncio.sleep(0.5)
        world.host("r").kill()
        result = await task
        result.check_prefix()
        assert isinstance(result.error, EngineFailed) and "continue" in str(result.error)

    in_world(scenario, can_continue=False)


def test_before_the_first_token_even_they_can_take_over() -> None:
    async def scenario(world: World) -> None:
        task = world.begin(ask(max_tokens=100))
        await asyncio.sleep(0.5)
        world.host("r").kill()
        (await task).check()

    in_world(scenario, can_continue=False, ttft_s=2.0)


def test_a_draining_replica_hands_its_streams_over() -> None:
    async def scenario(world: World) -> None:
        tasks = world.begin_many(30, max_tokens=100)
        await asyncio.sleep(0.7)
        world.engines[0].begin_drain()
        for result in await asyncio.gather(*tasks):
            assert result.check().largest_gap_s < 0.2
        assert world.state(0) == "healthy", "ending in order is no misdeed"
        world.check_idle()

    in_world(scenario)


def test_a_client_may_itself_continue_a_stream() -> None:
    async def scenario(world: World) -> None:
        whole = (await world.run(ask("one", max_tokens=40))).check()
        request = ask("two", max_tokens=40, emitted_ids=tuple(whole.ids[:15]))
        rest = await world.run(request)
        assert [chunk.start for chunk in rest.chunks] == list(range(15, 40))
        assert rest.ids == whole.ids[15:]

    in_world(scenario)

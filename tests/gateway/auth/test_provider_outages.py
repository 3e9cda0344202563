"""The identity provider may be slow, wrong or away: valid tokens stay valid (virtual time)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from steelyard.contract.errors import RetryLater
from steelyard.gateway.auth.refused import CredentialsRefused

from .issuer import Issuer, World

AWAY = OSError("connection refused")


@asynccontextmanager
async def kept_fresh(world: World) -> AsyncIterator[None]:
    """The cache's own upkeep runs."""
    task = asyncio.create_task(world.keys.run())
    await world.clock.advance(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_keys_are_fetched_again_after_half_their_time() -> None:
    world = World()
    async with kept_fresh(world):
        await world.clock.advance(1000)
    assert world.fetch_times == [0, 300, 600, 900]
    assert world.keys.age_s == 100


async def test_an_hour_without_the_provider_fails_no_valid_token() -> None:
    world = World()
    async with kept_fresh(world):
        world.answer = AWAY
        for _ in range(3600):
            await world.clock.advance(1)
            await world.verifier.identify(world.token())
    assert world.keys.error == "connection refused"
    gaps = [b - a for a, b in zip(world.fetch_times, world.fetch_times[1:], strict=False)]
    assert gaps[0] == 300 and set(gaps[1:]) == {30}


@pytest.mark.parametrize(
    "answer",
    [
        OSError("no route"),
        b"<html>login</html>",
        b"{}",
        b'{"keys":[]}',
        b'{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"ec"}]}',
        b"[" * 100_000,
    ],
)
async def test_a_bad_answer_takes_no_key_away(answer: bytes | Exception) -> None:
    world = World()
    await world.keys.refresh()
    world.answer = answer
    world.clock.jump(400)
    await world.keys.refresh()
    assert world.keys.error
    assert world.keys.version == 1
    await world.verifier.identify(world.token())


async def test_keys_that_nobody_could_confirm_for_a_day_are_not_trusted() -> None:
    world = World()
    async with kept_fresh(world):
        world.answer = AWAY
        await world.clock.advance(86_400)
        await world.verifier.identify(world.token())
        await world.clock.advance(1)
        with pytest.raises(RetryLater) as later:
            await world.verifier.identify(world.token())
        assert later.value.delay_s == 5
        world.answer = world.issuer.key_set()
        await world.clock.advance(30)
        await world.verifier.identify(world.token())


async def test_a_remembered_token_is_no_way_around_stale_keys() -> None:
    world = World(max_lifetime_s=1e6, keys_max_stale_s=60.0)
    token = world.token(exp=world.unix_time() + 1e5)
    await world.verifier.identify(token)
    world.clock.jump(30)
    await world.verifier.identify(world.token(exp=world.unix_time() + 1e5, jti="x"))
    world.answer = AWAY
    world.clock.jump(31)
    with pytest.raises(RetryLater):
        await world.verifier.identify(token)


async def test_a_flood_of_made_up_key_ids_fetches_once_per_cooldown() -> None:
    world = World()
    forged = [world.issuer.sign({}, "EC", {"kid": f"made-up-{i}"}) for i in range(100)]
    async with kept_fresh(world):
        for second in range(100):  # 10,000 tokens in 100 seconds
            await world.clock.advance(1)
            for token in forged:
                with pytest.raises(CredentialsRefused):
                    await world.verifier.identify(token)
            await world.verifier.identify(world.token(jti=str(second)))
    gaps = [b - a for a, b in zip(world.fetch_times, world.fetch_times[1:], strict=False)]
    assert len(world.fetch_times) == 4
    assert all(gap >= 30 for gap in gaps)


async def test_a_flood_while_the_provider_is_away_is_no_different() -> None:
    world = World()
    async with kept_fresh(world):
        world.answer = AWAY
        token = world.issuer.sign({}, "EC", {"kid": "made-up"})
        for _ in range(300):
            await world.clock.advance(1)
            with pytest.raises(CredentialsRefused):
                await world.verifier.identify(token)
    assert all(b - a >= 30 for a, b in zip(world.fetch_times, world.fetch_times[1:], strict=False))


async def test_a_new_key_of_the_provider_is_found_by_the_first_token_it_signs() -> None:
    world = World()
    async with kept_fresh(world):
        await world.clock.advance(40)
        after = Issuer(1)
        both = json.loads(world.issuer.key_set("EC"))["keys"] + [after.public("EC")]
        world.answer = json.dumps({"keys": both}).encode()
        world.issuer = after
        await world.verifier.identify(world.token())
        assert world.fetch_times == [0, 40]
        assert world.keys.version == 2


async def test_a_key_that_the_provider_withdrew_is_refused_from_the_next_fetch_on() -> None:
    world = World()
    async with kept_fresh(world):
        world.answer = world.issuer.key_set("RSA")
        await world.clock.advance(299)
        await world.verifier.identify(world.token("EC"))
        await world.clock.advance(1)
        with pytest.raises(CredentialsRefused):
            await world.verifier.identify(world.token("EC"))
        await world.verifier.identify(world.token("RSA"))


async def test_many_who_wait_share_one_fetch_and_none_of_them_ends_it() -> None:
    world = World()
    world.fetch_s = 3.0
    waiting = [asyncio.create_task(world.verifier.identify(world.token())) for _ in range(20)]
    await world.clock.advance(1)
    waiting[0].cancel()
    await world.clock.advance(3)
    with suppress(asyncio.CancelledError):
        await waiting[0]
    assert {task.result().tenant for task in waiting[1:]} == {"team-a"}
    assert world.fetch_times == [0]


async def test_known_keys_do_not_wait_for_a_fetch_that_is_slow() -> None:
    world = World()
    await world.keys.refresh()
    world.fetch_s = 30.0
    world.clock.jump(40)
    unknown = asyncio.create_task(
        world.verifier.identify(world.issuer.sign({}, "EC", {"kid": "made-up"}))
    )
    await world.clock.advance(0)
    await world.verifier.identify(world.token())
    assert not unknown.done()
    await world.clock.advance(30)
    with pytest.raises(CredentialsRefused):
        await unknown


async def test_before_the_first_keys_clients_are_told_to_come_back() -> None:
    world = World()
    world.answer = AWAY
    for _ in range(50):
        with pytest.raises(RetryLater):
            await world.verifier.identify(world.token())
        world.clock.jump(0.2)
    assert len(world.fetch_times) == 2, "at most one fetch in five seconds"
    world.answer = world.issuer.key_set()
    world.clock.jump(5)
    await world.verifier.identify(world.token())

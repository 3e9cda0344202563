"""Round robin, least loaded, sessions, and the names settings use."""

from collections import Counter
from typing import get_args, get_type_hints

import pytest

from steelyard.policies.config import RoutingConfig
from steelyard.policies.routing import LeastLoaded, RoundRobin, SessionAffinity, make_routing

from .targets import give, joined, least_ttft, trip


def test_round_robin_takes_everyone_in_turn() -> None:
    policy = RoundRobin()
    pool = joined(policy, 3)
    picks = [give(policy, pool, trip(1)).index for _ in range(9)]
    assert picks[:3] != picks[1:4] and Counter(picks) == {0: 3, 1: 3, 2: 3}


def test_round_robin_passes_over_those_with_less_capacity() -> None:
    policy = RoundRobin()
    pool = joined(policy, 3)
    pool[1].weight = 0.5
    counts = Counter(give(policy, pool, trip(1)).index for _ in range(500))
    assert counts[0] == pytest.approx(200, abs=3) and counts[1] == pytest.approx(100, abs=3)


def test_round_robin_skips_the_excluded() -> None:
    policy = RoundRobin()
    pool = joined(policy, 3)
    picks = {give(policy, pool, trip(1, excluded={2})).index for _ in range(6)}
    assert picks == {0, 1}
    assert policy.pick(trip(1, excluded={0, 1, 2}), pool, 0.0) is None


@pytest.mark.parametrize("count", [4, 500])
def test_least_loaded_keeps_loads_level(count: int) -> None:
    policy = LeastLoaded(RoutingConfig(), seed=1)
    pool = joined(policy, count)
    for _ in range(20 * count):
        give(policy, pool, trip(1)).begin(0.0, new_tokens=1, held_tokens=1)
    loads = [target.in_flight for target in pool]
    assert max(loads) - min(loads) <= (1 if count <= 32 else 8)


def test_least_loaded_finds_the_only_one_left_in_a_large_fleet() -> None:
    policy = LeastLoaded(RoutingConfig(), seed=1)
    pool = joined(policy, 500)
    target = policy.pick(trip(1, excluded=set(range(499))), pool, 0.0)
    assert target is not None and target.index == 499


def test_a_session_stays_where_it_was() -> None:
    policy = SessionAffinity(LeastLoaded(RoutingConfig(), seed=1), RoutingConfig())
    pool = joined(policy, 5)
    home = give(policy, pool, trip(1, session="s"))
    for turn in range(20):
        give(policy, pool, trip(turn + 2))
        assert give(policy, pool, trip(turn, session="s")) is home


def test_a_session_moves_when_its_home_is_much_slower_or_gone() -> None:
    policy = SessionAffinity(least_ttft(), RoutingConfig())
    pool = joined(policy, 3)
    home = give(policy, pool, trip(1, session="s"))
    home.begin(0.0, new_tokens=50_000, held_tokens=0)
    second = give(policy, pool, trip(1, session="s"))
    assert second is not home
    assert give(policy, pool, trip(1, session="s")) is second, "and stays there"
    pool.discard(second)
    assert give(policy, pool, trip(1, session="s")) is not second


def test_sessions_of_other_tenants_are_other_sessions() -> None:
    policy = SessionAffinity(RoundRobin(), RoutingConfig())
    pool = joined(policy, 2)
    homes = {give(policy, pool, trip(1, session="s", salt=salt)).index for salt in ("a", "b")}
    assert homes == {0, 1}


def test_sessions_are_bounded() -> None:
    policy = SessionAffinity(RoundRobin(), RoutingConfig(max_sessions=100))
    pool = joined(policy, 2)
    for number in range(1000):
        give(policy, pool, trip(1, session=f"s{number}"))
    assert len(policy) == 100


def test_every_policy_that_settings_can_name_routes() -> None:
    names = get_args(get_type_hints(RoutingConfig)["policy"])
    assert len(names) == 3
    for name in names:
        policy = make_routing(RoutingConfig(policy=name), seed=0)
        assert give(policy, joined(policy, 3), trip(1)).index in (0, 1, 2)

"""Who knows which prompt: compared with a plain model of least-recently-used caches."""

import random
import time
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from steelyard.policies.prefix_map import PrefixMap

BLOCK = 4


def prompt(*blocks: int, tail: int = 0) -> tuple[int, ...]:
    """A prompt of full blocks, each all of one token, and a rest that fills none."""
    return tuple(token for block in blocks for token in [block] * BLOCK) + (99,) * tail


def new_map(replicas: int = 3, *, max_blocks: int = 1000) -> PrefixMap:
    prefixes = PrefixMap(block_tokens=BLOCK, max_blocks=max_blocks)
    for replica in range(replicas):
        prefixes.add(replica)
    return prefixes


def known(prefixes: PrefixMap, token_ids: tuple[int, ...], limit: int = 100) -> dict[int, int]:
    return prefixes.overlaps(prefixes.keys(token_ids), limit=limit)


def test_longest_common_beginnings_are_found_for_all_replicas_at_once() -> None:
    prefixes = new_map()
    prefixes.sent(0, prefixes.keys(prompt(1, 2, 3)))
    prefixes.sent(1, prefixes.keys(prompt(1, 2, 7)))
    prefixes.sent(2, prefixes.keys(prompt(8, 2, 3)))
    assert known(prefixes, prompt(1, 2, 3, 4)) == {0: 12, 1: 8}
    assert list(known(prefixes, prompt(1, 2, 3, 4))) == [0, 1], "the longest first"
    assert known(prefixes, prompt(5)) == {}


def test_a_block_that_is_not_full_is_not_compared() -> None:
    prefixes = new_map()
    prefixes.sent(0, prefixes.keys(prompt(1, tail=3)))
    assert known(prefixes, prompt(1, tail=3)) == {0: 4}
    assert known(prefixes, (99, 99, 99)) == {}


def test_equal_blocks_after_different_beginnings_are_different() -> None:
    prefixes = new_map()
    prefixes.sent(0, prefixes.keys(prompt(1, 5)))
    assert known(prefixes, prompt(2, 5)) == {}


def test_salts_share_nothing() -> None:
    prefixes = new_map()
    prefixes.sent(0, prefixes.keys(prompt(1, 2), "tenant a"))
    assert prefixes.overlaps(prefixes.keys(prompt(1, 2), "tenant b"), limit=9) == {}
    assert prefixes.overlaps(prefixes.keys(prompt(1, 2), "tenant a"), limit=9) == {0: 8}


def test_a_restarted_replica_knows_nothing_and_others_keep_what_they_know() -> None:
    prefixes = new_map()
    for replica in (0, 1):
        prefixes.sent(replica, prefixes.keys(prompt(1, 2)))
    prefixes.forget(0)
    assert known(prefixes, prompt(1, 2)) == {1: 8}
    prefixes.sent(0, prefixes.keys(prompt(1)))
    assert known(prefixes, prompt(1, 2)) == {1: 8, 0: 4}


def test_a_replica_forgets_ends_of_old_prompts_before_their_beginnings() -> None:
    prefixes = PrefixMap(block_tokens=BLOCK, max_blocks=1000)
    prefixes.add(0, capacity_tokens=4 * BLOCK)
    prefixes.sent(0, prefixes.keys(prompt(1, 2, 3)))
    prefixes.sent(0, prefixes.keys(prompt(4, 5)))
    assert known(prefixes, prompt(1, 2, 3)) == {0: 8}
    assert known(prefixes, prompt(4, 5)) == {0: 8}


def test_memory_is_bounded_over_all_replicas() -> None:
    prefixes = new_map(10, max_blocks=200)
    chance = random.Random(1)
    for _ in range(2000):
        token_ids = prompt(*(chance.randrange(50) for _ in range(chance.randrange(1, 30))))
        prefixes.sent(chance.randrange(10), prefixes.keys(token_ids))
        assert len(prefixes) <= 200
    prefixes.check_integrity()


def test_a_removed_replicas_number_can_be_used_again() -> None:
    prefixes = new_map()
    prefixes.sent(1, prefixes.keys(prompt(1)))
    prefixes.remove(1)
    prefixes.sent(1, prefixes.keys(prompt(1)))
    assert known(prefixes, prompt(1)) == {}, "what is sent to nobody is not noted"
    prefixes.add(1)
    assert known(prefixes, prompt(1)) == {}
    prefixes.check_integrity()


@pytest.mark.slow
def test_looking_up_costs_little_more_with_a_thousand_replicas() -> None:
    """Masks grow by 16 bytes per hundred replicas, the number of look-ups does not."""

    def cost_s(replicas: int) -> float:
        prefixes = new_map(replicas, max_blocks=10**6)
        keys = prefixes.keys(prompt(*range(500)))
        for replica in range(replicas):
            prefixes.sent(replica, keys)
        best = 1.0
        for _ in range(20):
            began_s = time.perf_counter()
            prefixes.overlaps(keys, limit=8)
            best = min(best, time.perf_counter() - began_s)
        return best

    assert cost_s(1000) < 5 * cost_s(10)


class PrefixMapMachine(RuleBasedStateMachine):
    """Against one ordered dictionary of whole prefixes per replica."""

    ROOM = 6

    def __init__(self) -> None:
        super().__init__()
        self.prefixes = PrefixMap(block_tokens=BLOCK, max_blocks=1000)
        self.model: dict[int, OrderedDict[tuple[int, ...], None]] = {}

    @rule(replica=st.integers(0, 3))
    def add(self, replica: int) -> None:
        self.prefixes.add(replica, capacity_tokens=self.ROOM * BLOCK)
        self.model.setdefault(replica, OrderedDict())

    @rule(replica=st.integers(0, 3))
    def remove(self, replica: int) -> None:
        self.prefixes.remove(replica)
        self.model.pop(replica, None)

    @rule(replica=st.integers(0, 3))
    def forget(self, replica: int) -> None:
        self.prefixes.forget(replica)
        self.model.get(replica, OrderedDict()).clear()

    @rule(replica=st.integers(0, 3), blocks=st.lists(st.integers(0, 2), max_size=5))
    def send(self, replica: int, blocks: list[int]) -> None:
        self.prefixes.sent(replica, self.prefixes.keys(prompt(*blocks)))
        if replica not in self.model:
            return
        cache = self.model[replica]
        for end in range(len(blocks), 0, -1):
            cache.pop(tuple(blocks[:end]), None)
            cache[tuple(blocks[:end])] = None
        while len(cache) > self.ROOM:
            cache.popitem(last=False)

    @rule(blocks=st.lists(st.integers(0, 2), max_size=5))
    def look_up(self, blocks: list[int]) -> None:
        expected = {}
        for replica, cache in self.model.items():
            depth = 0
            while depth < len(blocks) and tuple(blocks[: depth + 1]) in cache:
                depth += 1
            if depth:
                expected[replica] = depth * BLOCK
        found = known(self.prefixes, prompt(*blocks))
        assert found == expected
        assert list(found.values()) == sorted(found.values(), reverse=True)

    @invariant()
    def is_consistent(self) -> None:
        self.prefixes.check_integrity()


TestPrefixMapMachine = PrefixMapMachine.TestCase
TestPrefixMapMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.integers(0, 3), max_size=8), st.integers(1, 3))
def test_the_limit_keeps_those_that_know_most(blocks: list[int], limit: int) -> None:
    prefixes = new_map(6)
    for replica in range(6):
        prefixes.sent(replica, prefixes.keys(prompt(*blocks[: replica + 1])))
    everybody = known(prefixes, prompt(*blocks))
    few = known(prefixes, prompt(*blocks), limit=limit)
    assert len(few) <= limit
    assert sorted(few.values(), reverse=True) == sorted(everybody.values(), reverse=True)[:limit]

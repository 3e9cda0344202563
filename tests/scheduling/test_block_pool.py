"""Blocks are in exactly one state, are found by key while they hold it, and are reused fairly."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steelyard.scheduling.block_pool import BlockPool


def key(name: int) -> bytes:
    return b"key %d" % name


def test_block_zero_is_never_handed_out() -> None:
    pool = BlockPool(4)
    assert pool.total == 3
    assert sorted(pool.take() for _ in range(3)) == [1, 2, 3]
    assert pool.free == 0


def test_a_released_block_is_found_until_it_is_reused() -> None:
    pool = BlockPool(2)
    block = pool.take()
    assert pool.publish(block, key(1))
    pool.release(block)
    assert pool.lookup(key(1)) == block
    assert (pool.free, pool.used, pool.cached) == (1, 0, 1)
    assert pool.take() == block
    assert pool.lookup(key(1)) is None


def test_blank_blocks_are_reused_before_cached_ones() -> None:
    pool = BlockPool(4)
    cached, blank, _ = pool.take(), pool.take(), pool.take()
    pool.publish(cached, key(1))
    pool.release(cached)
    pool.release(blank)
    assert pool.take() == blank
    assert pool.lookup(key(1)) == cached


def test_the_least_recently_released_block_goes_first() -> None:
    pool = BlockPool(4)
    blocks = [pool.take() for _ in range(3)]
    for block in blocks:
        pool.publish(block, key(block))
        pool.release(block)
    pool.share(blocks[0])
    pool.release(blocks[0])
    assert [pool.take() for _ in range(3)] == [blocks[1], blocks[2], blocks[0]]


def test_a_second_block_with_the_same_contents_stays_unpublished() -> None:
    pool = BlockPool(3)
    first, second = pool.take(), pool.take()
    assert pool.publish(first, key(1))
    assert not pool.publish(second, key(1))
    pool.release(second)
    assert pool.cached == 0
    assert pool.lookup(key(1)) == first


class PoolAgainstModel(RuleBasedStateMachine):
    """Against a model of who holds what, and of the order in which cached blocks go."""

    BLOCKS = 6

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(self.BLOCKS)
        self.held: list[int] = []
        self.keys: dict[int, bytes] = {}
        self.cached: list[int] = []

    @precondition(lambda self: len(set(self.held)) < self.BLOCKS - 1)
    @rule()
    def take(self) -> None:
        blank = self.BLOCKS - 1 - len(set(self.held)) - len(self.cached)
        block = self.pool.take()
        assert block not in self.held
        if not blank:
            assert block == self.cached.pop(0)
            del self.keys[block]
        self.held.append(block)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 99))
    def release(self, pick: int) -> None:
        block = self.held.pop(pick % len(self.held))
        self.pool.release(block)
        if block not in self.held and block in self.keys:
            self.cached.append(block)

    @precondition(lambda self: self.held)
    @rule(pick=st.integers(0, 99), name=st.integers(0, 3))
    def publish(self, pick: int, name: int) -> None:
        block = self.held[pick % len(self.held)]
        if block not in self.keys:
            is_new = key(name) not in self.keys.values()
            assert self.pool.publish(block, key(name)) == is_new
            if is_new:
                self.keys[block] = key(name)

    @rule(name=st.integers(0, 3))
    def share(self, name: int) -> None:
        block = self.pool.lookup(key(name))
        holders: list[int | None] = [
            held for held, held_key in self.keys.items() if held_key == key(name)
        ]
        assert [block] == (holders or [None])
        if block is not None:
            self.pool.share(block)
            self.held.append(block)
            if block in self.cached:
                self.cached.remove(block)

    @invariant()
    def agrees(self) -> None:
        self.pool.check_integrity({block: self.held.count(block) for block in self.held})
        assert self.pool.used == len(set(self.held))
        assert self.pool.cached == len(self.cached)


TestPoolAgainstModel = PoolAgainstModel.TestCase
TestPoolAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

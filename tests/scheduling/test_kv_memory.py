"""Blocks follow the sequence: all groups or none, given back in time, nothing left behind."""

import numpy as np

from steelyard.scheduling.config import KVGroup
from steelyard.scheduling.kv_manager import KVManager
from steelyard.scheduling.sequence import Sequence

from .paged_model import Driver, compressed, full, request, state, window


def manager(groups: list[KVGroup], max_running: int = 2) -> KVManager:
    return KVManager(groups, max_running=max_running, context_tokens=64, max_step_tokens=16)


def admitted(kv: KVManager, tokens: int = 20) -> Sequence:
    sequence = Sequence(request("r", range(1, tokens + 1), max_tokens=8))
    kv.admit(sequence, kv.find_prefix(sequence))
    return sequence


def advance(kv: KVManager, sequence: Sequence, to: int) -> None:
    assert kv.extend(sequence, to)
    sequence.computed_tokens = to
    if to >= sequence.commit_at_tokens:
        kv.commit(sequence)


def test_a_slice_gets_its_blocks_in_every_group_or_in_none() -> None:
    kv = manager([full(20), compressed(2, block_tokens=8)])  # one compressed block: 8 tokens
    sequence = admitted(kv)
    used = kv.blocks_used
    assert not kv.extend(sequence, 9)
    assert kv.blocks_used == used == 0
    assert kv.extend(sequence, 8)
    assert kv.blocks_used == 3
    assert kv.fit(sequence, 20) == 8


def test_blocks_are_taken_only_when_a_sequence_grows_past_the_ones_it_has() -> None:
    kv = manager([full(20)])
    sequence = admitted(kv)
    advance(kv, sequence, 5)
    assert (sequence.room_tokens, kv.blocks_used) == (8, 2)
    advance(kv, sequence, 8)
    assert kv.blocks_used == 2


def test_a_window_group_gives_back_what_the_window_has_left() -> None:
    kv = manager([window(20, window_tokens=6)])
    sequence = admitted(kv, tokens=30)
    for end in (8, 16, 24):
        advance(kv, sequence, end)
    assert kv.extend(sequence, 25)
    # Token 24 attends to [19, 24], that is to columns 4 to 6.
    row = kv.tables[0][sequence.row]
    assert np.flatnonzero(row).tolist() == [4, 5, 6]
    assert kv.blocks_used == 3


def test_a_long_window_sequence_runs_in_a_pool_as_large_as_its_window() -> None:
    driver = Driver([window(4, window_tokens=6)], max_step_tokens=4)
    driver.submit(request("long", [5] * 30, max_tokens=30, ignore_eos=True))
    driver.run_until_idle()
    driver.check_complete()
    assert driver.scheduler.status_counters.preemptions_total == 0


def test_a_state_group_holds_one_block_and_two_only_in_between() -> None:
    kv = manager([state(20)])
    sequence = admitted(kv)
    advance(kv, sequence, 3)
    assert kv.blocks_used == 1
    advance(kv, sequence, 4)
    assert kv.blocks_used == 1
    advance(kv, sequence, 15)  # from column 0 straight to column 3
    assert np.flatnonzero(kv.tables[0][sequence.row]).tolist() == [0, 3]
    assert kv.extend(sequence, 16)
    assert np.flatnonzero(kv.tables[0][sequence.row]).tolist() == [3]


def test_a_released_row_is_zero_and_reused() -> None:
    kv = manager([full(20), window(20, 5)], max_running=1)
    sequence = admitted(kv)
    advance(kv, sequence, 11)
    kv.release(sequence)
    assert not any(table.any() for table in kv.tables)
    assert (sequence.row, sequence.computed_tokens, kv.free_rows) == (-1, 0, 1)
    kv.check_integrity([])


def test_tables_are_int32_matrices_that_never_move() -> None:
    driver = Driver([full(40), compressed(20, block_tokens=8)], max_running=3)
    tables = driver.scheduler.block_tables
    addresses = [table.__array_interface__["data"] for table in tables]
    assert [table.dtype for table in tables] == [np.dtype(np.int32)] * 2
    assert [table.shape for table in tables] == [(3, 16), (3, 8)]
    driver.submit(request("a", range(20), max_tokens=8))
    driver.run_until_idle()
    assert [t.__array_interface__["data"] for t in driver.scheduler.block_tables] == addresses


def test_a_block_is_published_only_after_it_was_computed() -> None:
    kv = manager([full(20)])
    sequence = admitted(kv)
    assert kv.extend(sequence, 16)
    twin = Sequence(request("twin", range(1, 21)))
    assert kv.find_prefix(twin).tokens == 0
    sequence.computed_tokens = 9
    kv.commit(sequence)
    assert kv.find_prefix(twin).tokens == 8


def test_two_sequences_that_computed_the_same_leave_one_cached_copy() -> None:
    kv = manager([full(20)])
    one = admitted(kv, tokens=8)
    two = admitted(kv, tokens=8)
    advance(kv, one, 8)
    advance(kv, two, 8)
    kv.check_integrity([one, two])
    assert kv.blocks_used == 4
    kv.release(one)
    kv.release(two)
    kv.check_integrity([])
    assert kv.find_prefix(Sequence(request("r", range(1, 10)))).tokens == 8

"""KV memory is divided among groups of layers so that whole sequences fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import SettingsError
from steelyard.engine.kv_memory import KVNeeds, plan_kv
from steelyard.models.layers.attention import AttentionShape
from steelyard.scheduling.config import GroupKind

FULL = AttentionShape(9, 3, 64)
WINDOW = AttentionShape(9, 3, 64, window_tokens=128)
BLOCK_BYTES = 2 * 3 * 64 * 16 * 2


def needs(shapes: list[AttentionShape], **changes: int | bool) -> KVNeeds:
    values: dict[str, object] = {
        "shapes": shapes,
        "element_bytes": 2,
        "block_tokens": 16,
        "context_tokens": 1024,
        "context_is_fixed": True,
        "max_running": 4,
        "max_step_tokens": 64,
        "weight_bytes": 1 << 20,
        "kv_bytes": 0,
    }
    return KVNeeds(**{**values, **changes})  # type: ignore[arg-type]


def test_layers_that_keep_the_same_tokens_share_a_group() -> None:
    plan = plan_kv(needs([FULL, WINDOW, FULL, WINDOW, WINDOW], kv_bytes=64 << 20))
    assert plan.layers == ((0, 2), (1, 3, 4))
    assert [group.kind for group in plan.groups] == [GroupKind.FULL, GroupKind.WINDOW]
    assert plan.groups[1].window_tokens == 128
    assert [plan.group_of(layer) for layer in range(5)] == [0, 1, 0, 1, 1]


def test_a_single_group_gets_all_the_memory() -> None:
    plan = plan_kv(needs([FULL] * 3, kv_bytes=300 * 3 * BLOCK_BYTES + 5))
    assert plan.groups[0].blocks == 300
    assert plan.total_bytes == 300 * 3 * BLOCK_BYTES


@given(st.integers(1, 8), st.integers(1, 8), st.integers(10, 2000))
def test_memory_is_never_exceeded(full: int, window: int, blocks: int) -> None:
    budget = blocks * (full + window) * BLOCK_BYTES
    plan = plan_kv(
        needs([FULL] * full + [WINDOW] * window, kv_bytes=budget, context_is_fixed=False)
    )
    assert plan.total_bytes <= budget


def test_a_window_group_takes_no_more_than_its_sequences_can_use() -> None:
    plan = plan_kv(needs([FULL, WINDOW], kv_bytes=64 << 20))
    blocks_per_sequence = (128 + 64 + 16) // 16
    assert plan.groups[1].blocks == 4 * blocks_per_sequence + 1
    assert plan.groups[0].blocks > plan.groups[1].blocks


def test_automatic_memory_holds_two_full_contexts() -> None:
    plan = plan_kv(needs([FULL] * 30))
    assert plan.groups[0].blocks >= 2 * (1024 // 16)


def test_memory_for_less_than_one_sequence_is_refused_with_the_amount_needed() -> None:
    with pytest.raises(SettingsError) as caught:
        plan_kv(needs([FULL] * 30, context_tokens=100_000, kv_bytes=8 << 20))
    assert caught.value.param == "kv_cache.memory"
    assert "2198 MiB" in caught.value.fix


def test_without_a_fixed_context_sequences_are_limited_to_what_fits() -> None:
    shapes = [FULL] * 30
    budget = 101 * 30 * BLOCK_BYTES
    plan = plan_kv(needs(shapes, context_tokens=100_000, context_is_fixed=False, kv_bytes=budget))
    assert plan.context_tokens == 100 * 16
    with pytest.raises(SettingsError):
        plan_kv(needs(shapes, context_is_fixed=False, kv_bytes=BLOCK_BYTES))

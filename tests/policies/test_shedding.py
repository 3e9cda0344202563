"""Who is refused when all would wait too long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import Overloaded
from steelyard.policies.config import SheddingConfig
from steelyard.policies.shedding import Shedding


def test_short_waits_are_accepted_from_everybody() -> None:
    shedding = Shedding(SheddingConfig(max_wait_s=30.0))
    for priority in (-100, -1, 0, 1, 100):
        shedding.check(priority, 1.0)


def test_a_long_wait_is_refused_with_a_delay() -> None:
    shedding = Shedding(SheddingConfig(max_wait_s=30.0))
    with pytest.raises(Overloaded) as refusal:
        shedding.check(0, 42.0)
    assert refusal.value.delay_s == pytest.approx(12.0)


@given(st.integers(), st.integers(), st.floats(0, 1000))
def test_whoever_is_refused_is_not_more_important_than_anyone_accepted(
    one: int, other: int, wait_s: float
) -> None:
    shedding = Shedding(SheddingConfig())

    def is_accepted(priority: int) -> bool:
        try:
            shedding.check(priority, wait_s)
        except Overloaded:
            return False
        return True

    if one < other and is_accepted(other):
        assert is_accepted(one)

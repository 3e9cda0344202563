"""Who is next: by priority, then preempted streams, then by arrival."""

from hypothesis import given
from hypothesis import strategies as st

from steelyard.scheduling.sequence import Sequence
from steelyard.scheduling.waiting_queue import WaitingQueue

from .paged_model import request


def waiting(order: int, *, priority: int = 0, preemptions: int = 0) -> Sequence:
    asked = request(f"{order}", [1], priority=priority)
    sequence = Sequence(asked, arrival_s=float(order), arrival_order=order)
    sequence.preemptions = preemptions
    return sequence


def test_a_preempted_request_is_the_next_of_its_priority_but_not_before_more_important_ones() -> (
    None
):
    queue = WaitingQueue()
    early, preempted = waiting(1), waiting(7, preemptions=1)
    important = waiting(8, priority=-1)
    for sequence in (early, preempted, important):
        queue.push(sequence)
    assert list(queue) == [important, preempted, early]
    assert queue.head_wait_s(now_s=10.0) == 2.0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=20), st.randoms())
def test_the_order_is_the_same_however_requests_came_and_went(
    kinds: list[tuple[int, int]], dice: object
) -> None:
    sequences = [
        waiting(order, priority=priority, preemptions=preemptions)
        for order, (priority, preemptions) in enumerate(kinds)
    ]
    queue = WaitingQueue()
    for sequence in dice.sample(sequences, len(sequences)):  # type: ignore[attr-defined]
        queue.push(sequence)
    for sequence in sequences[::3]:
        queue.remove(sequence)
    queue.check_integrity()
    left = [sequence for index, sequence in enumerate(sequences) if index % 3]
    assert list(queue) == sorted(
        left, key=lambda s: (s.priority, not s.preemptions, s.arrival_order)
    )
    assert len(queue) == len(left)

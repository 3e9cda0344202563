"""Who is next: the waiting requests in the order in which they may start.

By priority, then preempted ones (their clients already read), then by arrival. Whether the next
one may start now is decided in `admission`.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from steelyard.scheduling.sequence import Sequence

__all__ = ["WaitingQueue"]


class WaitingQueue:
    """A sorted list: queues are bounded, and moving a few thousand pointers takes microseconds."""

    __slots__ = ("_sequences",)

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._sequences

    def __iter__(self) -> Iterator[Sequence]:
        """In order. Valid only while the queue is not changed."""
        return iter(self._sequences)

    def push(self, sequence: Sequence) -> None:
        """Add a sequence at its place."""
        insort(self._sequences, sequence, key=_place)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that waits here."""
        at = bisect_left(self._sequences, _place(sequence), key=_place)
        assert self._sequences[at] is sequence
        del self._sequences[at]

    def drop_started(self) -> None:
        """Take out the sequences that run by now."""
        self._sequences = [sequence for sequence in self._sequences if not sequence.is_running]

    def head_wait_s(self, now_s: float) -> float:
        """How long the next request has waited; 0 when none does."""
        return now_s - self._sequences[0].arrival_s if self._sequences else 0.0

    def check_integrity(self) -> None:
        """Assert that places are unique and in order, and that nobody here runs."""
        places = [_place(sequence) for sequence in self._sequences]
        assert places == sorted(set(places))
        assert not any(sequence.is_running for sequence in self._sequences)


def _place(sequence: Sequence) -> tuple[int, bool, int]:
    return sequence.priority, not sequence.preemptions, sequence.arrival_order

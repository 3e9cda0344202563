"""Whose answer is useless by now: the deadlines of live requests, earliest first.

A request past its deadline is failed by `scheduler`, whether it waits or runs.
"""

import heapq
from collections.abc import Iterator

from steelyard.scheduling.sequence import Sequence

__all__ = ["Deadlines"]


class Deadlines:
    """A heap that knows requests by id and arrival, so that ended ones are not kept alive."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []

    def add(self, sequence: Sequence) -> None:
        """Watch a sequence; one without a deadline is never late."""
        deadline_s = sequence.request.deadline_s
        if deadline_s is not None:
            due_s = sequence.arrival_s + deadline_s
            heapq.heappush(self._heap, (due_s, sequence.arrival_order, sequence.request_id))

    def pop_late(self, live: dict[str, Sequence], now_s: float) -> Iterator[Sequence]:
        """Those of the `live` whose deadline has come; each is reported once."""
        while self._heap and self._heap[0][0] <= now_s:
            _, arrival_order, request_id = heapq.heappop(self._heap)
            sequence = live.get(request_id)
            if sequence is not None and sequence.arrival_order == arrival_order:
                yield sequence

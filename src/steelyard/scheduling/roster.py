"""Where every live request is: waiting without KV memory, or running with a row of it.

    add ──▶ waiting ──start──▶ running ──end──▶ gone
               ▲                  │
               └─────preempt──────┘            end also takes a request out of the queue

The one owner of these moves, so that a request is in one place and its memory follows it. Who
moves when is decided in `step_planner` and `scheduler`.
"""

from bisect import insort

from steelyard.scheduling.kv_manager import KVManager, PrefixHit
from steelyard.scheduling.sequence import Sequence
from steelyard.scheduling.waiting_queue import WaitingQueue

__all__ = ["Roster"]


class Roster:
    """All live sequences.

    `running` is in order of (priority, arrival). Sequences that stop running stay on it, with
    `is_running` false, until `sweep`: a step may take out many, and loops over it go on meanwhile.
    """

    __slots__ = ("_kv", "live", "running", "waiting")

    def __init__(self, kv: KVManager) -> None:
        self._kv = kv
        self.live: dict[str, Sequence] = {}
        self.running: list[Sequence] = []
        self.waiting = WaitingQueue()

    def add(self, sequence: Sequence) -> None:
        """Let a new sequence wait."""
        self.live[sequence.request_id] = sequence
        self.waiting.push(sequence)

    def start(self, sequence: Sequence, hit: PrefixHit) -> None:
        """Let a waiting sequence run, from the end of `hit` on.

        It stays in the queue until `waiting.drop_started`.
        """
        self._kv.admit(sequence, hit)
        sequence.prefill_end = len(sequence.token_ids)
        sequence.held_by = None
        insort(self.running, sequence, key=_order)

    def preempt(self, sequence: Sequence) -> None:
        """Send a running sequence back to the queue with the tokens it has; sweep afterwards."""
        self._kv.release(sequence)
        sequence.preemptions += 1
        self.waiting.push(sequence)

    def end(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is; sweep afterwards."""
        del self.live[sequence.request_id]
        if sequence.is_running:
            self._kv.release(sequence)
        else:
            self.waiting.remove(sequence)

    def sweep(self) -> None:
        """Take those that do not run any more off `running`."""
        self.running = [sequence for sequence in self.running if sequence.row >= 0]

    def check_integrity(self) -> None:
        """Assert that every live sequence is in exactly one place, and in order."""
        orders = [_order(sequence) for sequence in self.running]
        assert orders == sorted(set(orders)), "running sequences out of order"
        placed = [*self.running, *self.waiting]
        assert len(placed) == len(self.live), "a request is lost or in two places"
        assert all(self.live[sequence.request_id] is sequence for sequence in placed)
        for sequence in self.running:
            assert sequence.is_running
            assert sequence.computed_tokens < len(sequence.token_ids) < sequence.length_limit
        self.waiting.check_integrity()
        self._kv.check_integrity(self.running)


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.priority, sequence.arrival_order

"""What can go wrong in a fake engine, and for which requests.

Faults are data, planned before the requests arrive. Injecting them at the level of sockets and
processes (half a frame, a stopped process) is not done here: run the fake engine behind a real
connection for that.
"""

import enum
from collections import deque
from dataclasses import dataclass, replace

__all__ = ["Fault", "FaultKind", "FaultPlan"]


class FaultKind(enum.Enum):
    """How a request goes wrong."""

    OVERLOADED = "overloaded"
    """Refused at the door with `Overloaded`."""
    FAIL = "fail"
    """`EngineFailed` after `after_tokens` tokens."""
    DROP = "drop"
    """`EngineLost` for this request after `after_tokens` tokens, as if its connection broke."""
    DIE = "die"
    """The whole engine is lost after `after_tokens` tokens of this request."""
    STALL = "stall"
    """No token comes after `after_tokens` tokens, until the request is aborted."""
    GARBAGE = "garbage"
    """The first chunk that ends beyond `after_tokens` tokens claims a wrong `start`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault for one or several requests."""

    kind: FaultKind
    after_tokens: int = 0
    """Tokens delivered properly first. Checked between chunks."""
    requests: int | None = 1
    """How many requests in a row suffer it; None means all from now on."""
    delay_s: float = 1.0
    """The `delay_s` of `Overloaded`."""

    def is_garbage_at(self, produced: int) -> bool:
        """True when a chunk that brings the total to `produced` tokens must be garbled."""
        return self.kind is FaultKind.GARBAGE and produced > self.after_tokens


class FaultPlan:
    """Faults in the order in which arriving requests meet them."""

    def __init__(self) -> None:
        self._planned: deque[Fault] = deque()

    def add(self, fault: Fault) -> None:
        """Plan `fault` after those already planned."""
        self._planned.append(fault)

    def next(self) -> Fault | None:
        """The fault of the request that arrives now; None when it will be served properly."""
        if not self._planned:
            return None
        fault = self._planned[0]
        if fault.requests is not None:
            self._planned.popleft()
            if fault.requests > 1:
                self._planned.appendleft(replace(fault, requests=fault.requests - 1))
        return fault

"""A whole workload as data: what, when, how often, from which seed. Part of every result.

The same workload gives the same requests anywhere, except for the run's own nonce (`CacheState`).
"""

import enum
from typing import Annotated

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load.arrivals import Arrivals, TraceReplay
from steelyard.lab.load.content import AzureTrace, Content, MooncakeTrace

__all__ = ["CacheState", "Workload"]


class CacheState(enum.Enum):
    """What the server's prefix cache holds of a prompt before it is measured."""

    COLD = "cold"
    """Nothing: every prompt begins with words that no earlier run has sent."""
    WARM = "warm"
    """Everything: the prompts come from a small deck, which is sent once before."""
    KEEP = "keep"
    """Whatever earlier traffic left there: equal seeds send equal prompts, nothing is sent before.
    Second runs are faster than first ones."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    arrivals: Arrivals
    content: Content
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    cache: CacheState = CacheState.COLD
    context_tokens: Annotated[int, msgspec.Meta(ge=2)] | None = None
    """Longest prompt and answer together; longer requests are cut. None: nothing is cut."""

    def __post_init__(self) -> None:
        is_trace = isinstance(self.content, AzureTrace | MooncakeTrace)
        if isinstance(self.arrivals, TraceReplay) and not is_trace:
            raise InvalidRequest("only a trace can be replayed", fix="name a trace")
        if self.cache is CacheState.WARM and is_trace:
            raise InvalidRequest(
                "a trace has no warm state, because its prompts warm each other",
                fix="use the cold or the kept cache",
            )

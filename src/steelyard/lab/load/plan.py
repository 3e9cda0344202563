"""The requests of a run laid out in columns: sessions of one or more turns, and when they begin.

A plan is made once (`planning`) and never changed; workers read their share of it. Texts are not in
it: `prompts` writes them when they are needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steelyard.lab.load.arrivals import Arrivals

__all__ = ["Plan", "Sessions", "Turn"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session."""

    session: int
    number: int
    """0 for the first."""
    input_tokens: int
    """Tokens of the user's words in this turn; the conversation before it comes on top."""
    output_tokens: int
    """Most tokens of the answer."""
    think_s: float
    """How long the user waits after the last answer; 0 in the first turn."""


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """Shapes of sessions, one row each. Turn columns are those of all rows, one after the other."""

    first_turn: Ints
    """(rows + 1): the turns of row r are [first_turn[r], first_turn[r + 1])."""
    input_tokens: Ints
    output_tokens: Ints
    think_s: Floats
    reusable_tokens: Ints
    """Prompt tokens that the plan itself makes a prefix cache hold: the conversation before, shared
    beginnings, blocks sent earlier. An upper bound for cached tokens on a cold cache."""
    prefix_group: Ints | None = None
    """(rows,) which shared beginning. None: there is none."""
    prefix_tokens: int = 0
    """Length of the shared beginnings."""
    blocks: Sequence[Sequence[int]] | None = None
    """Per turn, ids of the blocks that the prompt consists of. None: there are none."""
    texts: Sequence[str] | None = None
    """Per turn, the user's words. None: they are made up."""

    def __len__(self) -> int:
        return len(self.first_turn) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to send, and when."""

    arrivals: Arrivals
    starts_s: Floats | None
    """When each session begins, ascending, from the start of the run. None: when a user is free."""
    sessions: Sessions
    """Session s has the shape of row s modulo their number."""
    limit: int | None
    """How many sessions there are. None: as many as begin in time."""
    duration_s: float | None
    """No session begins later. None: the number of sessions decides."""
    cut_turns: int = 0
    """Requests that were shortened or left out to fit the context."""

    def turns(self, session: int) -> tuple[Turn, ...]:
        """The requests of a session, in order."""
        table = self.sessions
        row = session % len(table)
        first, end = int(table.first_turn[row]), int(table.first_turn[row + 1])
        return tuple(
            Turn(
                session=session,
                number=at - first,
                input_tokens=int(table.input_tokens[at]),
                output_tokens=int(table.output_tokens[at]),
                think_s=float(table.think_s[at]),
            )
            for at in range(first, end)
        )

    def turn_at(self, session: int, number: int) -> int:
        """Where the turn stands in the columns of `sessions`."""
        return int(self.sessions.first_turn[session % len(self.sessions)]) + number

"""How much a chat template may do, and the meter that runs while it does.

A budget belongs to one rendering and is found through a context variable, so that the hooks in
`_template_sandbox` and `_template_filters` need not pass it around. Pure accounting: what is
charged, and where, is decided there.
"""

from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from steelyard.contract import Clock

__all__ = [
    "TemplateBudget",
    "TemplateLimitExceeded",
    "TemplateLimits",
    "charge_chars",
    "charge_steps",
    "counted",
    "require_room",
    "require_weight",
    "running_budget",
]

ItemT = TypeVar("ItemT")

_VIEWS = (KeysView, ValuesView, ItemsView)
_MAX_DEPTH = 100
_BITS_PER_CHAR = 3
"""A decimal digit takes a little more than three bits of an integer."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """Bounds of one rendering; generous for any real template and conversation."""

    time_s: float = 2.0
    """Wall time, looked at in every step. A single step takes milliseconds at the worst."""
    steps: int = 1_000_000
    """Loop rounds, macro calls, branches, comparisons, filter and method calls."""
    value_chars: int = 8_000_000
    """Size of any single text; for lists and objects, of their content written out."""
    total_chars: int = 64_000_000
    """Size of all texts and lists made on the way, together."""
    output_chars: int = 8_000_000
    """Size of the rendered prompt."""
    source_chars: int = 262_144
    """Size of the template itself."""


class TemplateLimitExceeded(Exception):
    """A limit was reached; the message says which."""


class TemplateBudget:
    """What is left for one rendering."""

    __slots__ = ("_clock", "_deadline_s", "_steps", "_total_chars", "limits")

    def __init__(self, limits: TemplateLimits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._deadline_s = clock.now() + limits.time_s
        self._steps = limits.steps
        self._total_chars = limits.total_chars

    def step(self, count: int = 1) -> None:
        """Take steps; also looks at the clock."""
        self._steps -= count
        if self._steps < 0:
            raise TemplateLimitExceeded(f"it takes more than {self.limits.steps} steps")
        if self._clock.now() > self._deadline_s:
            raise TemplateLimitExceeded(f"it takes longer than {self.limits.time_s:g} s")

    def require_room(self, chars: int) -> None:
        """Raise unless a text or list of this size may be made."""
        if chars > self.limits.value_chars:
            raise TemplateLimitExceeded(
                f"it makes a value of more than {self.limits.value_chars} characters"
            )
        if chars > self._total_chars:
            raise TemplateLimitExceeded(
                f"it makes more than {self.limits.total_chars} characters in total"
            )

    def make(self, chars: int) -> None:
        """Make a text or list of this size."""
        self.require_room(chars)
        self._total_chars -= chars


_RUNNING: ContextVar[TemplateBudget | None] = ContextVar("template_budget", default=None)


@contextmanager
def running_budget(budget: TemplateBudget) -> Iterator[None]:
    """Charge everything in this block to `budget`."""
    token = _RUNNING.set(budget)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def charge_steps(count: int = 1) -> None:
    """Take steps from the running budget."""
    _running().step(count)


def charge_chars(count: int) -> None:
    """Take characters that are made from the running budget."""
    _running().make(count)


def require_room(count: int) -> None:
    """Raise unless so many characters may be made; for upper bounds. Charges nothing."""
    _running().require_room(count)


def counted(items: Iterable[ItemT]) -> Iterator[ItemT]:
    """The same items, one step each."""
    step = _running().step
    for item in items:
        step()
        yield item


def require_weight(value: Any, limit: int | None = None) -> int:
    """How many characters a value written out has at most; raises beyond the limit.

    What works its way through a whole value without asking us (turning it into text, comparing,
    hashing, sorting) is only let at values that passed: lists that share their parts can be
    exponentially larger written out than in memory.
    """
    if isinstance(value, str):
        weight, level = len(value), []
    else:
        weight, level = 0, [value]
    bound = _running().limits.value_chars if limit is None else limit
    depth = 0
    while level and weight <= bound:
        depth += 1
        if depth > _MAX_DEPTH:
            raise TemplateLimitExceeded(f"it nests values more than {_MAX_DEPTH} deep")
        weight, level = _weigh_level(level, weight, bound)
    if weight > bound:
        raise TemplateLimitExceeded(f"it works on a value of more than {bound} characters")
    return weight


def _weigh_level(level: list[Any], weight: int, bound: int) -> tuple[int, list[Any]]:
    """Add up one level of nesting and give the next; stops early when the bound is passed."""
    following: list[Any] = []
    for value in level:
        if isinstance(value, str):
            weight += len(value) + 4
        elif isinstance(value, dict):
            weight += 4 * len(value) + 4
            following.extend(chain(value.keys(), value.values()))
        elif isinstance(value, list | tuple):
            weight += 2 * len(value) + 4
            following.extend(value)
        elif isinstance(value, int):
            weight += value.bit_length() // _BITS_PER_CHAR + 6
        elif isinstance(value, _VIEWS):
            weight += 4 * len(value) + 4
            following.extend(value)
        else:
            weight += 24
        if weight > bound:
            break
    return weight, following


def _running() -> TemplateBudget:
    budget = _RUNNING.get()
    assert budget is not None, "template code runs only under a budget"
    return budget

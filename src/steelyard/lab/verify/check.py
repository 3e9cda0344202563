"""A check: its name, what it proves, where to look when it fails, and the code that finds out.

Names are `area.claim`, with `.chat` or `.text` behind them when both endpoints are checked alike.
Patterns select them as shells do (`*.chat`); the beginning of a name up to a dot stands for all
that begin so (`stops`, `streams.form`).
"""

import fnmatch
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.probe import Probe

__all__ = ["Check", "Claim", "check", "check_both", "select"]

_Run = Callable[[Probe], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Claim:
    """What can be put to the test."""

    name: str
    proves: str
    """The claim, as a sentence."""
    hint: str
    """Where to look when it does not hold."""


@dataclass(frozen=True, slots=True)
class Check(Claim):
    """A claim about one server, and the code that puts it to the test."""

    run: _Run
    """Raises `CheckFailed`, `NotOffered`, or leaves problems with the probe."""


ClaimT = TypeVar("ClaimT", bound=Claim)


def check(name: str, proves: str, hint: str) -> Callable[[_Run], Check]:
    """Make a check of a function."""
    return lambda run: Check(name, proves, hint, run)


def check_both(
    name: str, proves: str, hint: str
) -> Callable[[Callable[[Probe, Endpoint], Awaitable[None]]], tuple[Check, ...]]:
    """Make two checks of a function: of chat and of text completions."""

    def make(run: Callable[[Probe, Endpoint], Awaitable[None]]) -> tuple[Check, ...]:
        return tuple(
            Check(f"{name}.{one.value}", proves, hint, functools.partial(_run_at, run, one))
            for one in Endpoint
        )

    return make


def select(
    claims: Iterable[ClaimT], only: Sequence[str] = (), skip: Sequence[str] = ()
) -> tuple[ClaimT, ...]:
    """Those that a pattern of `only` names (all when it is empty) and none of `skip`.

    Raises `InvalidRequest` for a pattern that names no check: a misspelt one would pass silently.
    """
    claims = tuple(claims)
    for pattern in (*only, *skip):
        if not any(_matches(one, pattern) for one in claims):
            raise InvalidRequest(
                f"no check is called {pattern}", fix="see `steelyard verify --list`"
            )
    wanted = [one for one in claims if not only or any(_matches(one, p) for p in only)]
    return tuple(one for one in wanted if not any(_matches(one, p) for p in skip))


async def _run_at(
    run: Callable[[Probe, Endpoint], Awaitable[None]], endpoint: Endpoint, probe: Probe
) -> None:
    probe.need(endpoint)
    await run(probe, endpoint)


def _matches(one: Claim, pattern: str) -> bool:
    return one.name.startswith(f"{pattern}.") or fnmatch.fnmatchcase(one.name, pattern)

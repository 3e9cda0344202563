"""What a check found, and the ways a check can end.

passed     what the check is about holds
failed     it does not; `problems` say in which respect
skipped    the server does not offer it, or it could not be told: no proof of anything
broken     the check itself could not be carried out: a bug of ours
"""

import enum
from collections.abc import Sequence

import msgspec

from steelyard.lab.verify.exchange import Exchange

__all__ = ["CheckFailed", "Evidence", "Finding", "NotOffered", "Status", "evidence_of"]


class Status(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    BROKEN = "broken"


class CheckFailed(Exception):
    """What the check is about does not hold; ends the check."""


class NotOffered(Exception):
    """The server does not offer what the check needs; ends the check."""


class Evidence(msgspec.Struct, frozen=True):
    """One exchange, shortened for people. Holds no credentials."""

    request: str
    answer: str
    elapsed_s: float


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check."""

    check: str
    proves: str
    status: Status
    problems: tuple[str, ...] = ()
    """Of a failed check: what does not hold. Of a skipped one: why."""
    notes: tuple[str, ...] = ()
    """Measured on the way, worth knowing even when all is well."""
    hint: str = ""
    """Where to look when it failed."""
    evidence: tuple[Evidence, ...] = ()
    elapsed_s: float = 0.0


def evidence_of(exchanges: Sequence[Exchange]) -> tuple[Evidence, ...]:
    """Excerpts of `exchanges`."""
    return tuple(
        Evidence(exchange.request.shown, exchange.shown, round(exchange.elapsed_s, 4))
        for exchange in exchanges
    )

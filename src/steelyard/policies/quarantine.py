"""Finds requests that kill the replicas they run on, without condemning those who were there.

A replica dies with many requests in flight, and all but one are innocent. Each rider gets a strike:
a whole one when it had brought no token since it was given to that replica, half a one when it had
been running well. The few with a whole strike are kept *apart*: given to a replica on which no
other rider of a death is still unproven. If that one dies too, the rider with two strikes is alone,
and is refused from then on. If several have two strikes they are kept apart in turn, and the next
death tells. Any request that ends well is cleared.

    strikes after a death        what happens to the request
    less than 1, or in a crowd   moved like any other, on probation until its next token
    1 or more, one of a few      kept apart until its next token
    2 or more, the only one      refused, now and when it is sent again

So an ordinary death moves streams at once, and a poisoned prompt costs two replicas, or three when
it strikes late or in a deep queue. Knows fingerprints, not requests: `fingerprint` makes them.
"""

import enum
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from steelyard.contract import GenerateRequest
from steelyard.policies.config import QuarantineConfig

__all__ = ["Quarantine", "Rider", "Stance", "fingerprint"]

_CROWD = 4
"""More riders with a whole strike than this are not held up after a first death: most likely the
replica just had a deep queue."""


class Stance(enum.Enum):
    """What a request's past allows."""

    CLEAR = "clear"
    PROBATION = "probation"
    """Was in flight at a death; moves freely."""
    APART = "apart"
    """May only run where nobody else is on probation or apart."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Rider:
    """A request that was in flight on a replica that died."""

    fingerprint: bytes
    began_s: float
    """When it was given to that replica."""
    has_tokens: bool
    """Whether it had brought a token from there."""


@dataclass(slots=True)
class _Record:
    strikes: float = 0.0
    deaths: int = 0
    last_death_s: float = float("-inf")
    is_refused: bool = False


class Quarantine:
    """Suspicions and verdicts of one service, bounded in number and time."""

    def __init__(self, config: QuarantineConfig) -> None:
        self._config = config
        self._records: OrderedDict[bytes, _Record] = OrderedDict()
        """By fingerprint; the one whose last death is longest ago comes first."""
        self._refused = 0

    def __len__(self) -> int:
        """Suspicions and verdicts."""
        return len(self._records)

    @property
    def has_verdicts(self) -> bool:
        """False while there is nobody to refuse, so that nobody need be looked up."""
        return self._refused > 0

    def is_refused(self, fingerprint: bytes, now_s: float) -> bool:
        """Whether requests like this are turned away."""
        self._expire(now_s)
        record = self._records.get(fingerprint)
        return record is not None and record.is_refused

    def on_death(self, riders: Iterable[Rider], now_s: float) -> dict[bytes, Stance]:
        """A replica died with these in flight: the stance of each from now on."""
        self._expire(now_s)
        struck = {rider.fingerprint: self._strike(rider, now_s) for rider in riders}
        limit = self._config.deaths
        convicted = [key for key, record in struck.items() if record.strikes >= limit]
        if len(convicted) == 1:
            struck[convicted[0]].is_refused = True
            self._refused += 1
        few = sum(record.strikes >= 1.0 for record in struck.values()) <= _CROWD
        self._expire(now_s)
        return {key: _stance(record, is_one_of_few=few) for key, record in struck.items()}

    def on_success(self, fingerprint: bytes) -> None:
        """A request that was in flight at a death has ended well after all."""
        record = self._records.get(fingerprint)
        if record is not None and not record.is_refused:
            del self._records[fingerprint]

    def _strike(self, rider: Rider, now_s: float) -> _Record:
        record = self._records.setdefault(rider.fingerprint, _Record())
        # Equal requests may die on several replicas at once: that is one death, not two.
        if rider.began_s >= record.last_death_s and record.last_death_s < now_s:
            record.strikes += 0.5 if rider.has_tokens else 1.0
            record.deaths += 1
            record.last_death_s = now_s
        self._records.move_to_end(rider.fingerprint)
        return record

    def _expire(self, now_s: float) -> None:
        records, config = self._records, self._config
        while records:
            key, record = next(iter(records.items()))
            is_old = record.last_death_s + config.keep_s < now_s
            if not is_old and len(records) <= config.max_entries:
                return
            del records[key]
            self._refused -= record.is_refused


def fingerprint(request: GenerateRequest) -> bytes:
    """Equal for requests that ask the same of an engine, their seeds apart.

    The tenant is part of it, so that none can have another's prompts refused.
    """
    sampling = msgspec.structs.replace(request.sampling, seed=0)
    what = (request.tenant, request.model, request.prompt_ids, sampling)
    return hashlib.blake2b(msgspec.msgpack.encode(what), digest_size=16).digest()


def _stance(record: _Record, *, is_one_of_few: bool) -> Stance:
    if record.is_refused:
        return Stance.REFUSED
    if record.deaths >= 2 and record.strikes >= 1.0:
        return Stance.APART
    return Stance.APART if record.strikes >= 1.0 and is_one_of_few else Stance.PROBATION

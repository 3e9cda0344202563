"""Standbys: loaded, out of rotation, and serving within a moment of a failure.

One idea: roles are swapped, processes are not. When a replica that serves is lost, a standby of its
group takes over; the one that was lost is started again as the standby. So nothing has to be
swapped back, and a process that comes back late, a stale primary, finds itself out of rotation:
the epoch under which it served is over.
"""

import logging

from steelyard.contract.errors import InvalidRequest
from steelyard.fleet.crew import Crew, Hand
from steelyard.fleet.ledger import Ledger
from steelyard.fleet.lifecycle import Phase

__all__ = ["Standbys"]

_log = logging.getLogger(__name__)


class Standbys:
    """Who serves and who stands by; told when a replica is lost."""

    def __init__(self, crew: Crew, ledger: Ledger) -> None:
        self._crew = crew
        self._ledger = ledger
        for hand in crew:
            crew.roster.want(hand.post.name, self.is_serving(hand.post.name))

    def is_serving(self, name: str) -> bool:
        """Whether a replica is meant to take requests."""
        post = self._crew[name].post
        return self._ledger.is_serving(name, default=post.standby_of is None)

    def note_lost(self, name: str) -> None:
        """A replica has died, or is silent. May be told again and again of the same loss."""
        if name in self._crew and self.is_serving(name):
            self._replace(self._crew[name])

    def promote(self, name: str) -> None:
        """Let a standby serve besides the others. Raises `InvalidRequest` when it cannot."""
        hand = self._crew[name]
        if self.is_serving(name):
            raise InvalidRequest(f"{name} serves already", param="replica")
        if hand.replica.status.phase is not Phase.READY:
            raise InvalidRequest(f"{name} is not ready", param="replica")
        self._set(name, True)

    def _replace(self, lost: Hand) -> None:
        """Swap roles with a ready standby of the same family, if there is one."""
        family = lost.post.standby_of or lost.post.group
        for hand in self._crew:
            name = hand.post.name
            is_kin = family in (hand.post.standby_of, hand.post.group)
            is_ready = hand.replica.status.phase is Phase.READY
            if is_kin and is_ready and not self.is_serving(name):
                _log.warning("%s takes over from %s", name, lost.post.name)
                self._set(name, True)
                self._set(lost.post.name, False)
                return

    def _set(self, name: str, is_serving: bool) -> None:
        self._ledger.note_serving(name, is_serving)
        self._crew.roster.want(name, is_serving)

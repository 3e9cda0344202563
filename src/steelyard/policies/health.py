"""Is this replica fit for requests? One state machine per replica, fed by three signals.

    probes       asked in the background: is anybody there, do its counters move
    progress     tokens of real streams: whoever computes lives, however slowly it answers probes
    in-band      errors, lost connections and stalls of real requests

    HEALTHY ──doubt──▶ SUSPECT ──confirmed──▶ EJECTED ──time served, it answers──▶ RETURNING
       ▲ ◀─answer, tokens─┘                      ▲ ◀───────────any doubt──────────────┘ │
       └────────────────────────────────────────────────────────────ramp complete───────┘

Every ejection is longer than the one before, until the replica has behaved for a while: what flaps
stays out. How many may be out at once is not decided here but by `rotation`; what to do with the
requests of an ejected replica is `gateway.failover`'s business.
"""

import enum

from steelyard.contract import EngineStatus
from steelyard.policies.config import HealthConfig

__all__ = ["Health", "ReplicaHealth"]

_STUCK_STEPS = 4.0
_NEVER = float("-inf")


class Health(enum.Enum):
    """What a replica may be given."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """In doubt, and being probed: given requests only when nobody better is there."""
    EJECTED = "ejected"
    RETURNING = "returning"
    """Given a growing share."""


class ReplicaHealth:
    """The state of one replica. A new one is absent until it answers its first probe."""

    def __init__(self, config: HealthConfig, now_s: float) -> None:
        self._config = config
        self.state = Health.EJECTED
        self.reason = "new"
        """Why it is in its state; short, and fit to be a metric's label."""
        self.is_absent = True
        """Nobody is there, as far as is known: no process, or no connection to it."""
        self.is_draining = False
        """It said that it takes no new requests."""
        self.next_probe_s = now_s
        self.ejections = 0
        """In a row: what the next ejection's length depends on."""
        self._until_s = now_s
        self._probe_began_s: float | None = None
        self._asked_s = _NEVER
        self._misses = 0
        self._errors = 0
        self._has_stalled = False
        self._tokens_s = _NEVER
        self._step_time_s = 0.0
        self._mark: tuple[str, int, int, int] | None = None
        """Epoch and counters when they were last seen to move; None when unknown."""
        self._mark_s = now_s
        self._return_began_s: float | None = None
        """Start of the ramp; None once it is complete."""
        self._healthy_since_s = now_s

    def share(self, now_s: float) -> float:
        """Which part of its full share of requests it may be given, in (0, 1]."""
        began_s = self._return_began_s
        if self.state is not Health.RETURNING or began_s is None:
            return 1.0
        least, length_s = self._config.return_share, self._config.return_s
        if now_s - began_s >= length_s:
            self._complete_return(now_s)
            return 1.0
        return least + (1.0 - least) * max(now_s - began_s, 0.0) / length_s

    # Probes.

    def is_probe_due(self, now_s: float) -> bool:
        return self._probe_began_s is None and now_s >= self.next_probe_s

    def begin_probe(self, now_s: float) -> float:
        """Note that a probe is under way; how long its answer may take, in seconds."""
        self._probe_began_s = self._asked_s = now_s
        config = self._config
        timeout_s = config.probe_timeout_s + config.probe_timeout_steps * self._step_time_s
        return min(timeout_s, max(config.probe_timeout_cap_s, config.probe_timeout_s))

    def on_answer(self, now_s: float, status: EngineStatus) -> None:
        """The probe was answered."""
        if status.state in ("starting", "lost"):
            self.on_absence(now_s, status.state)
            return
        self._probe_began_s = None
        self.is_absent = False
        self.is_draining = status.state == "draining"
        self._step_time_s = status.step_time_s
        has_progressed = self._has_progressed(now_s, status)
        if has_progressed is False:
            self._eject(now_s, "stuck")
        elif has_progressed or not self._has_stalled:
            # An answer alone clears a replica that was only silent, not one that has stalled.
            self._misses = 0
            self._clear(now_s)
        self._plan_probe(now_s)

    def on_miss(self, now_s: float) -> None:
        """The probe was not answered in time, or failed."""
        began_s, self._probe_began_s = self._probe_began_s, None
        if began_s is not None and self._tokens_s >= began_s:
            self.next_probe_s = now_s + self._config.probe_s  # busy: tokens came meanwhile
            return
        self._misses += 1
        if self._has_stalled or self._misses >= self._config.probe_misses:
            self._eject(now_s, "silent")
        else:
            self._suspect(now_s, "silent")
        self._plan_probe(now_s)

    def on_absence(self, now_s: float, reason: str) -> None:
        """There is no engine to talk to: lost, being replaced, or still starting."""
        self._probe_began_s = None
        if not self.is_absent:
            self.is_absent = True
            self._eject(now_s, reason)
        self._mark = None
        self.next_probe_s = now_s + self._config.doubt_probe_s

    # News of real requests.

    def on_tokens(self, now_s: float) -> None:
        """Tokens came from it since the last call."""
        self._tokens_s = now_s
        self._misses = 0
        if self.state is Health.SUSPECT or self.is_absent:
            self.is_absent = False
            self._clear(now_s)
            self._plan_probe(now_s)

    def on_stall(self, now_s: float) -> None:
        """All its streams have been silent for too long."""
        self._has_stalled = True
        self._mark = None
        if self.state is Health.RETURNING:
            self._eject(now_s, "stalled")
        else:
            self._suspect(now_s, "stalled")

    def on_doubt(self, now_s: float) -> None:
        """A first token is overdue: ask sooner than planned whether all is well."""
        soon_s = max(now_s, self._asked_s + self._config.doubt_probe_s)
        if self.state in (Health.HEALTHY, Health.RETURNING):
            self.next_probe_s = min(self.next_probe_s, soon_s)

    def on_lost(self, now_s: float) -> None:
        """A request's connection broke, but the replica may well be there."""
        self._errors += 1
        if self.state is Health.RETURNING or self._errors >= self._config.errors_in_a_row:
            self._eject(now_s, "lost")
        else:
            self._suspect(now_s, "lost")

    def on_success(self) -> None:
        """A request ended as it should."""
        self._errors = 0

    def on_error(self, now_s: float) -> None:
        """A request failed there, and not by its own fault."""
        self._errors += 1
        if self.state is Health.RETURNING or self._errors >= self._config.errors_in_a_row:
            self._eject(now_s, "errors")
            self._plan_probe(now_s)

    def on_draining(self, now_s: float) -> None:
        """It handed a request back because it is about to end."""
        self.is_draining = True
        self.next_probe_s = min(self.next_probe_s, now_s + self._config.doubt_probe_s)

    # Transitions.

    def _has_progressed(self, now_s: float, status: EngineStatus) -> bool | None:
        """True when idle or moving, False when stuck, None when it is too early to say."""
        mark = (
            status.epoch,
            status.steps_total,
            status.computed_tokens_total,
            status.produced_tokens_total,
        )
        is_first, self._mark, before = self._mark is None, mark, self._mark
        if not status.running and not status.waiting:
            self._mark_s = now_s
            return True
        if mark != before or self._tokens_s >= self._mark_s:
            self._mark_s = now_s
            return None if is_first else True
        limit_s = self._config.probe_timeout_s if self._has_stalled else self._config.stuck_s
        limit_s = max(limit_s, _STUCK_STEPS * self._step_time_s)
        return False if now_s - self._mark_s >= limit_s else None

    def _clear(self, now_s: float) -> None:
        """There is no doubt left; an ejected replica has to serve its time first."""
        self._has_stalled = False
        if self.state is Health.EJECTED:
            if now_s >= self._until_s:
                self.state, self.reason = Health.RETURNING, "returning"
                self._return_began_s = now_s
                self._errors = 0
        elif self.state is Health.SUSPECT:
            is_back = self._return_began_s is None
            self.state = Health.HEALTHY if is_back else Health.RETURNING
            self.reason = "" if is_back else "returning"

    def _suspect(self, now_s: float, reason: str) -> None:
        if self.state in (Health.HEALTHY, Health.RETURNING):
            self.state, self.reason = Health.SUSPECT, reason
        self.next_probe_s = now_s

    def _eject(self, now_s: float, reason: str) -> None:
        if self.state is not Health.EJECTED:
            self._forgive(now_s)
            exponent = min(self.ejections, 64)  # a float overflows after a thousand ejections
            config = self._config
            length_s = config.ejection_s * config.ejection_factor**exponent
            self._until_s = now_s + min(length_s, config.ejection_cap_s)
            self.ejections += 1
        self.state, self.reason = Health.EJECTED, reason
        self._return_began_s = None
        self._misses = self._errors = 0

    def _complete_return(self, now_s: float) -> None:
        self.state, self.reason = Health.HEALTHY, ""
        self._return_began_s = None
        self._healthy_since_s = now_s

    def _forgive(self, now_s: float) -> None:
        """Good behaviour since its return was complete counts against earlier ejections."""
        if self._return_began_s is None:
            forgiven = int((now_s - self._healthy_since_s) / self._config.forgive_s)
            self.ejections = max(self.ejections - forgiven, 0)

    def _plan_probe(self, now_s: float) -> None:
        config = self._config
        if self.state is Health.EJECTED:
            self.next_probe_s = max(self._until_s, now_s + config.doubt_probe_s)
        elif self.state is Health.SUSPECT or self.is_draining:
            self.next_probe_s = now_s + config.doubt_probe_s
        else:
            self.next_probe_s = now_s + config.probe_s

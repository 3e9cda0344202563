"""What to do next about one replica's process: pure decisions, no I/O, no clock of its own.

    wanted      DOWN → STARTING ⇄ READY      ready ⇄ connection lost
                          │  ↑      │
                     died │  │ due  │ died
                          ↓  │      ↓
                         WAITING ←──┘        a final death, or too many: → BROKEN
    not wanted  any phase → STOPPING → DOWN

Target and phase are kept apart: only the owner sets the target (`want`), only news of the process
moves the phase (`on_…`), and `advance` says what brings the one to the other. `fleet.replica`
carries that out.
"""

import enum

from steelyard.contract.errors import EngineStalled, SteelyardError
from steelyard.fleet.config import RestartPolicy

__all__ = ["Action", "Lifecycle", "Phase"]


class Phase(enum.Enum):
    """Where a replica's process is."""

    DOWN = "down"
    STARTING = "starting"
    """It runs, but is still loading, or the connection to it is lost."""
    READY = "ready"
    WAITING = "waiting"
    """It died; the next start comes at `due_s`."""
    STOPPING = "stopping"
    BROKEN = "broken"
    """Starting it again cannot help; `error` says why."""


class Action(enum.Enum):
    """What the owner of a `Lifecycle` has to carry out."""

    SPAWN = "spawn"
    TERMINATE = "terminate"
    """Ask the process to finish what it has, and to end."""
    KILL = "kill"


class Lifecycle:
    """The state machine of one replica; every method takes the present as `now_s`."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.phase = Phase.DOWN
        self.is_wanted = False
        self.due_s: float | None = None
        """When `advance` has something to do even without news; None: never."""
        self.error: SteelyardError | None = None
        """What is, or was last, wrong; None while ready."""
        self.restarts = 0
        """Processes started after the first one."""
        self._starts = 0
        self._failures = 0
        self._ready_since_s: float | None = None
        """When this process was ready first; lost connections do not count against it."""
        self.was_ever_ready = False
        """True once any of the processes was ready."""
        self._kill_reason: SteelyardError | None = None

    @property
    def has_started(self) -> bool:
        """True once a first process was started."""
        return self._starts > 0

    def want(self, is_wanted: bool) -> None:
        """Set the target. Wanting a broken replica up again gives it a fresh chance."""
        if is_wanted and self.phase is Phase.BROKEN:
            self._failures = 0
            self._enter(Phase.DOWN)
        self.is_wanted = is_wanted

    def advance(self, now_s: float) -> Action | None:
        """The next thing to do now; call again until it is None."""
        return self._advance_up(now_s) if self.is_wanted else self._advance_down(now_s)

    def on_ready(self, now_s: float) -> None:
        """The process is connected, and its model loaded."""
        if self.phase is Phase.STARTING:
            self._enter(Phase.READY)
            if self._ready_since_s is None:
                self._ready_since_s = now_s
            self.was_ever_ready = True
            self.error = None

    def on_connection_lost(self, now_s: float, error: SteelyardError) -> None:
        """The connection broke or could not be made, while the process lives as far as is known."""
        if self.phase is Phase.READY:
            self._enter(Phase.STARTING, due_s=now_s + self._policy.reconnect_timeout_s)
        if self.phase is Phase.STARTING:
            self.error = error

    def on_exit(self, now_s: float, error: SteelyardError, *, is_final: bool) -> None:
        """The process is gone, or could not be made; `is_final`: the next would end likewise."""
        error = self._kill_reason or error
        is_by_order = self.phase is Phase.STOPPING and self._kill_reason is None
        self._kill_reason = None
        if is_by_order or not self.is_wanted:
            self._enter(Phase.DOWN)
            return
        self.error = error
        self._count_failure(now_s)
        if is_final or self._is_hopeless():
            self._enter(Phase.BROKEN)
        else:
            self._enter(Phase.WAITING, due_s=now_s + self._backoff_s())

    def _advance_up(self, now_s: float) -> Action | None:
        match self.phase:
            case Phase.DOWN:
                return self._spawn(now_s)
            case Phase.WAITING if self._is_due(now_s):
                return self._spawn(now_s)
            case Phase.STARTING if self._is_due(now_s):
                self._kill_reason = self._why_too_late()
                self._enter(Phase.STOPPING)
                return Action.KILL
            case Phase.STOPPING if self._is_due(now_s):
                self.due_s = None
                return Action.KILL
        return None

    def _advance_down(self, now_s: float) -> Action | None:
        match self.phase:
            case Phase.STARTING | Phase.READY:
                self._enter(Phase.STOPPING, due_s=now_s + self._policy.stop_grace_s)
                return Action.TERMINATE
            case Phase.STOPPING if self._is_due(now_s):
                self.due_s = None
                return Action.KILL
            case Phase.WAITING | Phase.BROKEN:
                self._enter(Phase.DOWN)
        return None

    def _spawn(self, now_s: float) -> Action:
        self.restarts += 1 if self._starts else 0
        self._starts += 1
        self._ready_since_s = None
        self._enter(Phase.STARTING, due_s=now_s + self._policy.start_timeout_s)
        return Action.SPAWN

    def _enter(self, phase: Phase, *, due_s: float | None = None) -> None:
        self.phase = phase
        self.due_s = due_s

    def _is_due(self, now_s: float) -> bool:
        return self.due_s is not None and now_s >= self.due_s

    def _why_too_late(self) -> SteelyardError:
        if self._ready_since_s is not None and self.error is not None:
            return self.error  # the connection broke, and did not come back
        return EngineStalled(
            f"the engine was not ready within {self._policy.start_timeout_s:g} s",
            fix="raise engine.start_timeout_s if loading may take longer",
        )

    def _count_failure(self, now_s: float) -> None:
        since_s = self._ready_since_s
        was_stable = since_s is not None and now_s - since_s >= self._policy.stable_s
        self._failures = 1 if was_stable else self._failures + 1

    def _is_hopeless(self) -> bool:
        return not self.was_ever_ready and self._failures >= self._policy.give_up_after

    def _backoff_s(self) -> float:
        """Zero for the first failure in a row, then growing from `backoff_first_s` to the cap."""
        policy = self._policy
        if self._failures <= 1:
            return 0.0
        # Bounded, because a float overflows after a thousand failures.
        exponent = min(self._failures - 2, 64)
        return min(policy.backoff_first_s * policy.backoff_factor**exponent, policy.backoff_cap_s)

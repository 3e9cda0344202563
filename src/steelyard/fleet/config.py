"""Settings of the keeper of replicas, resolved. `cli.wiring` fills them in."""

from dataclasses import dataclass

__all__ = ["RestartPolicy"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How long a replica's process may take for things, and when to start it again."""

    start_timeout_s: float = 600.0
    """From start to ready: loading a large model from a slow disk takes minutes."""
    reconnect_timeout_s: float = 10.0
    """From a lost connection to a new one while the process lives; then it is replaced."""
    silence_s: float = 150.0
    """A connected process that has answered nothing for so long is replaced. More than a step may
    take (the engine's `watchdog_s`), because an engine answers between steps."""
    stop_grace_s: float = 40.0
    """From SIGTERM to SIGKILL; more than the engine's own `drain_s`."""
    backoff_first_s: float = 0.5
    """Before the second restart in a row; the first comes at once, since most deaths are alone."""
    backoff_factor: float = 2.0
    backoff_cap_s: float = 30.0
    stable_s: float = 60.0
    """A replica that was ready for so long starts its row of failures from zero."""
    give_up_after: int = 5
    """Failed starts in a row after which a replica that was never ready counts as broken. One
    that worked before is tried for ever: its machine may be cured under it."""

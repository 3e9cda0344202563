"""Reads the deployment file again while the service runs, and changes what can change meanwhile.

    SIGHUP, a changed file, POST /admin/reload
        → read all layers again → what can change is laid over what is in force → judged → applied

All or nothing: a file with a problem, or settings that the door cannot follow, leave everything as
it was, and log, metrics and `/admin/status` say why. What only a restart can change is named and
left alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from steelyard.contract import Clock, RealClock
from steelyard.contract.errors import SettingsError, SteelyardError
from steelyard.settings import Deployment, Resolved
from steelyard.settings.rules import contradictions
from steelyard.telemetry.service_meter import ServiceMeter

__all__ = ["Origin", "Reload", "Reloader", "overlay"]

_log = logging.getLogger(__name__)

_LOOK_S = 2.0

_Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a service's settings came from, so that they can be read again."""

    file: Path | None
    """The deployment file; None: there is none, and nothing can change."""
    read: Callable[[], Resolved]
    """All layers, from the file as it is now. Raises `SettingsError`."""


@dataclass(frozen=True, slots=True)
class Reload:
    """What came of reading the settings again."""

    outcome: Literal["applied", "unchanged", "refused"]
    applied: tuple[str, ...] = ()
    """Keys that have another value now."""
    waiting: tuple[str, ...] = ()
    """Keys whose new value needs a restart."""
    error: str | None = None
    """Why it was refused."""

    def as_json(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "applied": self.applied,
            "needs_restart": self.waiting,
            "error": self.error,
        }


class Reloader:
    """Keeps what is in force. `apply` follows a deployment or raises an error of the tree, having
    changed nothing."""

    def __init__(
        self,
        resolved: Resolved,
        origin: Origin,
        *,
        apply: Callable[[Deployment], Awaitable[None]],
        meter: ServiceMeter,
        clock: Clock | None = None,
    ) -> None:
        self._in_force = resolved
        self._origin = origin
        self._apply = apply
        self._meter = meter
        self._clock = clock or RealClock()
        self._stamp = _stamp(origin.file)
        self._rung = asyncio.Event()
        self._turn = asyncio.Lock()
        self.last: Reload | None = None
        """What came of the newest attempt; None before the first."""

    def ring(self) -> None:
        """Read again soon; returns at once."""
        self._rung.set()

    async def run(self) -> None:
        """Read again whenever the file changes or somebody rings, until cancelled."""
        while True:
            await self._until_needed()
            await self.reload()

    async def reload(self) -> Reload:
        """Read again now."""
        async with self._turn:
            self._stamp = _stamp(self._origin.file)
            self.last = await self._reload()
        self._tell(self.last)
        return self.last

    async def _reload(self) -> Reload:
        try:
            # In a thread: a file may be on a slow disk.
            wanted = await asyncio.to_thread(self._origin.read)
            following = overlay(self._in_force.deployment, wanted.deployment)
            _require_sound(following)
            target = Resolved(following, self._in_force.cache_dir, wanted.sources)
            applied = _differing(self._in_force, target)
            if applied:
                await self._apply(following)
        except SteelyardError as error:
            return Reload("refused", error=_words(error))
        self._in_force = target
        waiting = _differing(target, wanted)
        return Reload("applied" if applied else "unchanged", applied, waiting)

    async def _until_needed(self) -> None:
        while not self._rung.is_set() and _stamp(self._origin.file) == self._stamp:
            looking = asyncio.ensure_future(self._clock.sleep(_LOOK_S))
            ringing = asyncio.ensure_future(self._rung.wait())
            try:
                await asyncio.wait((looking, ringing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                looking.cancel()
                ringing.cancel()
        self._rung.clear()

    def _tell(self, reload: Reload) -> None:
        self._meter.reloaded(reload.outcome, restart_needed=bool(reload.waiting))
        if reload.error is not None:
            _log.error("the settings were read again and refused: %s", reload.error)
            _log.error("what was in force before stays in force")
        elif reload.applied:
            _log.info("the settings were read again; changed: %s", ", ".join(reload.applied))
        else:
            _log.info("the settings were read again; nothing changes")
        if reload.waiting:
            _log.warning("a restart is needed to change %s", ", ".join(reload.waiting))


def overlay(running: Deployment, wanted: Deployment) -> Deployment:
    """`running`, with everything from `wanted` that can change without a restart."""
    gateway = running.gateway.model_copy(
        update={
            name: getattr(wanted.gateway, name)
            for name in ("auth", "cors", "limits", "keepalive_comment_s", "stall_timeout_s")
        }
    )
    tenants = wanted.tenants.model_copy(update={"redis": running.tenants.redis})
    telemetry = running.telemetry.model_copy(update={"log": wanted.telemetry.log})
    return running.model_copy(
        update={"gateway": gateway, "tenants": tenants, "telemetry": telemetry}
    )


def _require_sound(deployment: Deployment) -> None:
    """The two together may be what neither is alone: a door without locks on an address that was
    chosen for one with them."""
    for found in contradictions(deployment):
        raise SettingsError(found.reason, param=found.paths[0], fix=found.fix)


def _differing(before: Resolved, after: Resolved) -> tuple[str, ...]:
    old = {row.key.name: row.value for row in before.as_rows()}
    new = {row.key.name: row.value for row in after.as_rows()}
    missing = object()
    names = dict.fromkeys((*old, *new))
    return tuple(n for n in names if old.get(n, missing) != new.get(n, missing))


def _words(error: SteelyardError) -> str:
    where = f"{error.param}: " if error.param else ""
    fix = f" Fix: {error.fix}" if error.fix else ""
    return f"{where}{error.message}{fix}"


def _stamp(file: Path | None) -> _Stamp:
    """Changes whenever the file does; None when there is none."""
    try:
        found = None if file is None else file.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)

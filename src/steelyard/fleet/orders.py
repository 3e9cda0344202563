"""What operators may ask of a fleet, and how it is carried out.

Messages between `steelyard status|drain|…` and the supervisor, and the desk that answers them.
How they travel is `admin_socket`'s business.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable

import msgspec

from steelyard.contract.errors import ErrorInfo as Error
from steelyard.contract.errors import InvalidRequest, SteelyardError, to_info
from steelyard.fleet.crew import Crew, Hand, Post
from steelyard.fleet.ledger import Ledger
from steelyard.fleet.lifecycle import Phase
from steelyard.fleet.standby import Standbys

__all__ = ["Answer", "Desk", "Order", "ReplicaReport"]

_log = logging.getLogger(__name__)

_MAX_REPLICAS = 256


class Status(msgspec.Struct, frozen=True, tag="status"):
    """Who there is, and how everybody is."""


class Logs(msgspec.Struct, frozen=True, tag="logs"):
    """The newest log lines of a replica."""

    replica: str


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """No new requests for a replica; what it has ends or goes on elsewhere."""

    replica: str


class Resume(msgspec.Struct, frozen=True, tag="resume"):
    """Give a drained replica requests again."""

    replica: str


class Restart(msgspec.Struct, frozen=True, tag="restart"):
    """Drain a replica, start its process anew, and give it requests again."""

    replica: str


class Promote(msgspec.Struct, frozen=True, tag="promote"):
    """Let a standby serve."""

    replica: str


class Scale(msgspec.Struct, frozen=True, tag="scale"):
    """Change the number of replicas of a group."""

    group: str
    replicas: int


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """For drills: send a signal to a replica's process, without telling its keeper."""

    replica: str
    name: str
    """`SIGKILL`, `SIGSTOP` or `SIGCONT`."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the service and all replicas."""


Order = Status | Logs | Drain | Resume | Restart | Promote | Scale | Signal | Stop

_DRILLS = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP, "SIGCONT": signal.SIGCONT}


class ReplicaReport(msgspec.Struct, frozen=True):
    """One replica, for people."""

    name: str
    group: str
    role: str
    """`serving`, `standby` or `drained`."""
    phase: str
    pid: int | None
    restarts: int
    error: str | None


class Answer(msgspec.Struct, frozen=True):
    """To any order; `error` None when it was carried out."""

    error: Error | None = None
    replicas: tuple[ReplicaReport, ...] = ()
    lines: tuple[str, ...] = ()
    url: str | None = None
    """Where the service is reached; None before it is open."""


class Desk:
    """Carries out orders on a crew, one at a time where they change something."""

    def __init__(
        self,
        crew: Crew,
        ledger: Ledger,
        standbys: Standbys,
        *,
        drain_s: float,
        on_stop: Callable[[], None],
    ) -> None:
        """`on_stop` begins the end of the service, replicas included."""
        self.url: str | None = None
        """Told to whoever asks for the status."""
        self._crew = crew
        self._ledger = ledger
        self._standbys = standbys
        self._drain_s = drain_s
        self._on_stop = on_stop
        self._changing = asyncio.Lock()
        self._drained: set[str] = set()

    async def answer(self, order: Order) -> Answer:
        """Carry out one order; errors of the tree become part of the answer."""
        try:
            return await self._carry_out(order)
        except SteelyardError as error:
            return Answer(error=to_info(error))

    async def _carry_out(self, order: Order) -> Answer:
        match order:
            case Status():
                return Answer(replicas=tuple(map(self._report, self._crew)), url=self.url)
            case Logs(replica):
                return Answer(lines=self._crew[replica].replica.status.stderr_tail)
            case Signal(replica, name):
                self._send_signal(replica, name)
            case Stop():
                self._on_stop()
            case _:
                _log.info("order: %s", order)
                async with self._changing:
                    await self._change(order)
        return Answer()

    async def _change(self, order: Order) -> None:
        match order:
            case Drain(replica):
                await self._drain(self._crew[replica])
            case Resume(replica):
                self._resume(self._crew[replica])
            case Restart(replica):
                await self._restart(self._crew[replica])
            case Promote(replica):
                self._standbys.promote(self._crew[replica].post.name)
            case Scale(group, replicas):
                await self._scale(group, replicas)

    async def _drain(self, hand: Hand) -> None:
        name = hand.post.name
        if self._is_serving(name) and not self._others_serve(name):
            raise InvalidRequest(
                f"{name} is the only replica that serves",
                param="replica",
                fix="scale its group up, or promote a standby, before",
            )
        self._drained.add(name)
        await self._crew.roster.empty(name, grace_s=self._drain_s)

    def _resume(self, hand: Hand) -> None:
        name = hand.post.name
        self._drained.discard(name)
        self._crew.roster.want(name, self._standbys.is_serving(name))

    async def _restart(self, hand: Hand) -> None:
        self._standbys.note_lost(hand.post.name)
        with contextlib.suppress(InvalidRequest):  # the only one: its streams wait for it
            await self._drain(hand)
        await hand.replica.shutdown()
        self._ledger.note_process(hand.post.name, None)
        hand.replica.startup()
        self._resume(hand)
        await hand.replica.wait_ready()

    async def _scale(self, group: str, replicas: int) -> None:
        hands = [hand for hand in self._crew if hand.post.group == group]
        if not hands:
            known = ", ".join(dict.fromkeys(hand.post.group for hand in self._crew))
            raise InvalidRequest(
                f"there is no group {group[:100]!a}", param="group", fix=f"use one of {known}"
            )
        if not 1 <= replicas <= _MAX_REPLICAS:
            raise InvalidRequest(
                f"{replicas} is out of range", param="replicas", fix=f"use 1 to {_MAX_REPLICAS}"
            )
        self._ledger.note_count(group, replicas)
        first = hands[0].post
        for number in range(len(hands), replicas):
            post = Post(f"{group}/{number}", group, first.weight, first.standby_of)
            self._crew.add(post).replica.startup()
        for hand in hands[replicas:]:
            await self._crew.dismiss(hand.post.name, grace_s=self._drain_s)
            self._ledger.note_process(hand.post.name, None)
            self._drained.discard(hand.post.name)
        new = [hand for hand in self._crew if hand.post.group == group]
        await asyncio.gather(*(hand.replica.wait_ready() for hand in new))

    def _send_signal(self, name: str, signal_name: str) -> None:
        pid = self._crew[name].replica.status.pid
        number = _DRILLS.get(signal_name)
        if number is None or pid is None:
            raise InvalidRequest(f"{name} cannot be sent {signal_name[:20]!a}", param="signal")
        _log.warning("drill: %s is sent %s", name, signal_name)
        os.kill(pid, number)

    def _report(self, hand: Hand) -> ReplicaReport:
        status = hand.replica.status
        name = hand.post.name
        role = "serving" if self._is_serving(name) else "standby"
        return ReplicaReport(
            name=name,
            group=hand.post.group,
            role="drained" if name in self._drained else role,
            phase=status.phase.value,
            pid=status.pid,
            restarts=status.restarts,
            error=None if status.error is None else str(status.error),
        )

    def _is_serving(self, name: str) -> bool:
        return self._standbys.is_serving(name) and name not in self._drained

    def _others_serve(self, name: str) -> bool:
        return any(
            hand.replica.status.phase is Phase.READY and self._is_serving(hand.post.name)
            for hand in self._crew
            if hand.post.name != name
        )

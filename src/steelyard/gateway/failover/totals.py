"""Many replicas as one engine: their facts and their counters summed up.

Counters of replicas that were replaced or taken out stay in the sums, so that totals only grow, as
those of a single engine do while it lives.
"""

from collections.abc import Mapping, Sequence

import msgspec

from steelyard.contract import EngineInfo, EngineState, EngineStatus

__all__ = ["Totals", "sum_up_infos"]

_COUNTERS = tuple(
    field for field in EngineStatus.__struct_fields__
    if field.endswith("_total") and field not in ("kv_blocks_total", "admission_holds_total")
)  # fmt: skip
_SUMS = ("running", "waiting", "kv_blocks_used", "kv_blocks_total")


class Totals:
    """Remembers what every process has counted."""

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch
        self._counted: dict[tuple[str, str], dict[str, int]] = {}
        """By replica and epoch: only the present epoch of each, the others are in `_past`."""
        self._past: dict[str, int] = {}

    def add_up(self, statuses: Mapping[str, EngineStatus], state: EngineState) -> EngineStatus:
        """One status from the newest ones of all replicas, by name."""
        for name, status in statuses.items():
            self._note(name, status)
        sums = {name: sum(getattr(s, name) for s in statuses.values()) for name in _SUMS}
        steps = [status.step_time_s for status in statuses.values() if status.step_time_s]
        counters = dict(self._past)
        for counted in self._counted.values():
            _add(counters, counted)
        holds = {
            name.removeprefix(_HOLD): counters.pop(name)
            for name in tuple(counters)
            if name.startswith(_HOLD)
        }
        return EngineStatus(
            state=state,
            epoch=self._epoch,
            step_time_s=sum(steps) / len(steps) if steps else 0.0,
            admission_holds_total=holds,
            **sums,
            **counters,
        )

    def _note(self, name: str, status: EngineStatus) -> None:
        for key in [key for key in self._counted if key[0] == name and key[1] != status.epoch]:
            _add(self._past, self._counted.pop(key))
        counted = {counter: getattr(status, counter) for counter in _COUNTERS}
        counted |= {_HOLD + cause: count for cause, count in status.admission_holds_total.items()}
        self._counted[name, status.epoch] = counted


def sum_up_infos(infos: Sequence[EngineInfo], epoch: str) -> EngineInfo:
    """What holds for all replicas together; at least one."""
    first = infos[0]
    details = dict(first.details)
    if len(infos) > 1:
        details["replicas"] = str(len(infos))
    return msgspec.structs.replace(
        first,
        context_tokens=min(info.context_tokens for info in infos),
        epoch=epoch,
        pid=first.pid if len(infos) == 1 else 0,
        kv_blocks_total=sum(info.kv_blocks_total for info in infos),
        max_running=sum(info.max_running for info in infos),
        can_continue=all(info.can_continue for info in infos),
        details=details,
    )


_HOLD = "hold/"


def _add(sums: dict[str, int], counted: Mapping[str, int]) -> None:
    for name, count in counted.items():
        sums[name] = sums.get(name, 0) + count

"""Turns the snapshots of engines into metrics that never run backwards.

An engine counts from zero whenever its process starts anew. The mirror adds up what each process
(epoch) has counted, so that a restart is a restart and not a fall of `rate()`.
"""

from collections import deque
from collections.abc import Mapping
from typing import get_args

from steelyard.contract import EngineState, EngineStatus
from steelyard.telemetry._instruments import Instruments

__all__ = ["EngineMirror"]

_COUNTERS = {
    "steps_total": "steelyard_engine_steps_total",
    "prompt_tokens_total": "steelyard_engine_prompt_tokens_total",
    "cached_tokens_total": "steelyard_engine_cached_tokens_total",
    "computed_tokens_total": "steelyard_engine_computed_tokens_total",
    "produced_tokens_total": "steelyard_engine_produced_tokens_total",
    "preemptions_total": "steelyard_engine_preemptions_total",
}
_OUTCOMES = {
    "finished_total": "finished",
    "aborted_total": "aborted",
    "failed_total": "failed",
}
_REMEMBERED_EPOCHS = 16


class EngineMirror:
    """The metrics of one replica."""

    def __init__(self, instruments: Instruments, replica: str) -> None:
        self._instruments = instruments
        self._replica = replica
        self._epoch = ""
        self._past_epochs: deque[str] = deque(maxlen=_REMEMBERED_EPOCHS)
        self._seen: dict[tuple[str, ...], int] = {}
        instruments.counter("steelyard_engine_restarts_total", replica)

    def observe(self, status: EngineStatus) -> None:
        """Take over one snapshot. A late one, of a process already replaced, is ignored."""
        if status.epoch in self._past_epochs:
            return
        if status.epoch and status.epoch != self._epoch:
            self._begin_epoch(status.epoch)
        self._set_gauges(status)
        if status.epoch:
            self._grow_counters(status)

    def _begin_epoch(self, epoch: str) -> None:
        if self._epoch:
            self._past_epochs.append(self._epoch)
            self._instruments.counter("steelyard_engine_restarts_total", self._replica).add()
        self._epoch = epoch
        self._seen.clear()

    def _set_gauges(self, status: EngineStatus) -> None:
        used, blocks = status.kv_blocks_used, status.kv_blocks_total
        values: Mapping[str, float] = {
            "steelyard_engine_up": status.state in {"ready", "draining"},
            "steelyard_engine_running": status.running,
            "steelyard_engine_waiting": status.waiting,
            "steelyard_engine_kv_blocks": blocks,
            "steelyard_engine_kv_blocks_used": used,
            "steelyard_engine_kv_used_ratio": used / blocks if blocks else 0.0,
            "steelyard_engine_step_seconds": status.step_time_s,
        }
        for name, value in values.items():
            self._instruments.gauge(name, self._replica).set(value)
        for state in get_args(EngineState):
            gauge = self._instruments.gauge("steelyard_engine_state", self._replica, state)
            gauge.set(status.state == state)

    def _grow_counters(self, status: EngineStatus) -> None:
        for field, name in _COUNTERS.items():
            self._grow(name, (), getattr(status, field))
        for field, outcome in _OUTCOMES.items():
            ended = "steelyard_engine_requests_ended_total"
            self._grow(ended, (outcome,), getattr(status, field))
        for cause, count in status.admission_holds_total.items():
            self._grow("steelyard_engine_admission_holds_total", (cause,), count)

    def _grow(self, name: str, labels: tuple[str, ...], value: int) -> None:
        key = (name, *labels)
        series = self._instruments.counter(name, self._replica, *labels)
        if (grown := value - self._seen.get(key, 0)) > 0:
            series.add(grown)
            self._seen[key] = value

"""What one replica is doing for us, and when it would have a first token for one request more.

Counted here, at the sender: a probe's numbers are seconds old when they are needed. Every request
in flight is a `Load`, which is begun once and ended once.
"""

from steelyard.contract import EngineInfo, EngineStatus
from steelyard.policies.ttft_model import TtftModel

__all__ = ["Load", "Target"]

_MEMORY = 0.9
_RELEARN_S = 60.0
_FIRST_SERVICE_S = 1.0


class Load:
    """One request on one target."""

    __slots__ = (
        "_is_over",
        "began_s",
        "first_token_s",
        "held_tokens",
        "new_tokens",
        "predicted_s",
        "queued_tokens",
    )

    def __init__(self, *, began_s: float, new_tokens: float, held_tokens: float) -> None:
        self.began_s = began_s
        self.new_tokens = new_tokens
        """Prompt tokens that are expected to be computed."""
        self.held_tokens = held_tokens
        """KV memory it may come to need, in tokens."""
        self.queued_tokens = 0.0
        """New tokens of those before it, when it began."""
        self.predicted_s = 0.0
        """Predicted time to the first token when it began."""
        self.first_token_s: float | None = None
        """When the first token came; None before."""
        self._is_over = False

    @property
    def is_over(self) -> bool:
        return self._is_over

    def end(self) -> None:
        """Valid once."""
        assert not self._is_over, "a slot is released twice"
        self._is_over = True


class Target:
    """The routing side of one replica."""

    __slots__ = (
        "_common",
        "_loads",
        "_seen_s",
        "_service_s",
        "_unanswered",
        "capacity_tokens",
        "held_tokens",
        "in_flight",
        "index",
        "max_running",
        "model",
        "penalty_s",
        "queued_tokens",
        "share",
        "weight",
        "work",
    )

    def __init__(
        self,
        index: int,
        *,
        weight: float = 1.0,
        penalty_s: float = 0.0,
        model: TtftModel | None = None,
    ) -> None:
        """`model`: what is expected of it before it is known; None: something plausible."""
        self.index = index
        """Its number in prefix map and pool."""
        self.weight = weight
        """Capacity relative to others; a node group's setting. 0: no new requests."""
        self.penalty_s = penalty_s
        """Added to predictions: how far away it is."""
        self.share = 1.0
        """Part of its weight that health lets it have now."""
        self.in_flight = 0
        self.queued_tokens = 0.0
        """New tokens of requests without a first token."""
        self.held_tokens = 0.0
        self.capacity_tokens = 0
        """Of its KV memory; 0: unknown."""
        self.max_running = 0
        """Requests it computes at once; 0: unknown."""
        self.work = 0.0
        """See `work.WorkLedger`, which owns it."""
        self.model = model or TtftModel()
        self._common = self.model.parent or self.model
        self._seen_s = float("-inf")
        """When a first token came last."""
        self._service_s = _FIRST_SERVICE_S
        self._unanswered: dict[Load, None] = {}
        """Loads without a first token, the oldest first."""
        self._loads: set[Load] = set()

    @property
    def capacity(self) -> float:
        """What it may be given, relative to others."""
        return self.weight * self.share

    @property
    def service_s(self) -> float:
        """Recent mean time from a first token to a request's end."""
        return self._service_s

    def describe(self, info: EngineInfo) -> None:
        """Take over what does not change while the engine lives."""
        self.capacity_tokens = info.kv_block_tokens * info.kv_blocks_total
        self.max_running = info.max_running

    def observe(self, status: EngineStatus) -> None:
        """Take over a probe's answer: what waits there although it has room has filled it up."""
        if status.waiting and status.running and not self.max_running:
            self.max_running = status.running

    def predict_ttft_s(self, new_tokens: float, held_tokens: float, now_s: float) -> float:
        """Seconds to the first token of a request that begins now."""
        own_s = self._model_at(now_s).predict_s(new_tokens)
        return own_s + self.predict_wait_s(held_tokens, now_s) + self.penalty_s

    def predict_wait_s(self, held_tokens: float, now_s: float) -> float:
        """Seconds before a request that begins now is worked on: queue, places and memory."""
        wait_s = self._model_at(now_s).slope_s * self.queued_tokens
        in_flight = self.in_flight
        if self.max_running and in_flight >= self.max_running:
            wait_s += self._service_s * (in_flight - self.max_running + 1) / self.max_running
        if self.capacity_tokens and in_flight:
            lacking = self.held_tokens + held_tokens - self.capacity_tokens
            # Held memory comes free at the pace at which requests end (Little's law).
            wait_s += self._service_s * max(lacking, 0.0) / max(self.held_tokens, 1.0)
        for load in self._unanswered:
            # Whoever has waited longest tells how long waiting takes when something is wrong.
            late_s = now_s - load.began_s - load.predicted_s
            return max(wait_s, late_s)
        return wait_s

    def begin(self, now_s: float, *, new_tokens: float, held_tokens: float) -> Load:
        """A request is given to it: a load, to be ended exactly once.

        `new_tokens`: of its prompt, those that are expected to be computed. `held_tokens`: KV
        memory that it may come to need.
        """
        load = Load(began_s=now_s, new_tokens=new_tokens, held_tokens=held_tokens)
        load.predicted_s = self.predict_ttft_s(new_tokens, held_tokens, now_s)
        load.queued_tokens = self.queued_tokens
        self.in_flight += 1
        self.queued_tokens += new_tokens
        self.held_tokens += held_tokens
        self._unanswered[load] = None
        self._loads.add(load)
        return load

    def first_token(self, load: Load, now_s: float, *, computed_tokens: float | None) -> None:
        """The request's first token has come; later calls change nothing.

        `computed_tokens`: prompt tokens it says it had to compute; None when it does not say.
        """
        if load.first_token_s is not None or load.is_over:
            return
        load.first_token_s = self._seen_s = now_s
        del self._unanswered[load]
        self.queued_tokens -= load.new_tokens
        is_crowded = bool(self.max_running) and self.in_flight > self.max_running
        if not is_crowded:  # else it waited for a place, which is not the model's subject
            own_tokens = load.new_tokens if computed_tokens is None else computed_tokens
            self.model.observe(load.queued_tokens + own_tokens, now_s - load.began_s)

    def end(self, load: Load, now_s: float, *, has_finished: bool) -> None:
        """The request is no longer there, for whatever reason. Valid once per load."""
        load.end()
        self._loads.remove(load)
        self.in_flight -= 1
        self.held_tokens -= load.held_tokens
        if load.first_token_s is None:
            del self._unanswered[load]
            self.queued_tokens -= load.new_tokens
        elif has_finished:
            elapsed_s = now_s - load.first_token_s
            self._service_s += (1 - _MEMORY) * (elapsed_s - self._service_s)
        if not self._loads:
            self.queued_tokens = self.held_tokens = 0.0  # what rounding has left

    def _model_at(self, now_s: float) -> TtftModel:
        """What was learned here; or, if that is old, what holds for all. A replica that was slow
        once would otherwise never be asked again whether it still is."""
        return self.model if now_s - self._seen_s <= _RELEARN_S else self._common

    def check_integrity(self) -> None:
        """Assert that the sums are those of the requests in flight."""
        assert self.in_flight == len(self._loads) >= len(self._unanswered)
        assert all(not load.is_over for load in self._loads)
        held = sum(load.held_tokens for load in self._loads)
        queued = sum(load.new_tokens for load in self._unanswered)
        assert abs(held - self.held_tokens) < 1.0 and abs(queued - self.queued_tokens) < 1.0

"""`/metrics` of a door in several processes: put together by the keeper, passed on by workers."""

from collections.abc import Awaitable, Callable, Iterable

from steelyard.contract import Clock
from steelyard.contract.errors import ProtocolError
from steelyard.gateway.metrics_page import observe_engines
from steelyard.gateway.models import ServedModel
from steelyard.gateway.workers.messages import Message, Page, PageText
from steelyard.telemetry.merging import MergedMetrics
from steelyard.telemetry.metrics import Metrics

__all__ = ["MergedPage", "RemotePage"]

_TIMEOUT_S = 5.0


class MergedPage:
    """`MetricsPage` of all processes. `refresh` brings the workers' newest values."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        metrics: Metrics,
        merged: MergedMetrics,
        *,
        clock: Clock,
        timeout_s: float,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        self._models = tuple(models)
        self._metrics = metrics
        self._merged = merged
        self._clock = clock
        self._timeout_s = timeout_s
        self._refresh = refresh

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """See `MetricsPage.exposition`."""
        await self._refresh()
        await observe_engines(self._models, self._metrics, self._clock, self._timeout_s)
        return self._merged.exposition(accept)


class RemotePage:
    """`MetricsPage` of a worker: `ask` reaches the keeper."""

    def __init__(self, ask: Callable[[Message, float], Awaitable[Message]]) -> None:
        self._ask = ask

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """See `MetricsPage.exposition`. Raises `EngineLost` when the keeper does not answer."""
        answer = await self._ask(Page(accept), _TIMEOUT_S)
        if not isinstance(answer, PageText):
            raise ProtocolError("the keeper's answer is no page")
        return answer.body, answer.content_type

"""What `/metrics` shows: of a service in one process here, of several processes in `workers`."""

from collections.abc import Iterable
from typing import Protocol

from steelyard.contract import Clock, EngineStatus
from steelyard.contract.clock import within
from steelyard.contract.errors import EngineStarting, SteelyardError
from steelyard.gateway.models import ServedModel
from steelyard.telemetry.metrics import Metrics

__all__ = ["MetricsPage", "OwnMetrics", "observe_engines"]


class MetricsPage(Protocol):
    """All values of a service, up to date."""

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """Text and its content type, in the format that an `Accept` header asks for."""
        ...


class OwnMetrics:
    """Those of this process, after a fresh look at the engines."""

    def __init__(
        self, models: Iterable[ServedModel], metrics: Metrics, clock: Clock, timeout_s: float
    ) -> None:
        self._models = tuple(models)
        self._metrics = metrics
        self._clock = clock
        self._timeout_s = timeout_s

    async def exposition(self, accept: str) -> tuple[bytes, str]:
        """See `MetricsPage.exposition`."""
        await observe_engines(self._models, self._metrics, self._clock, self._timeout_s)
        return self._metrics.exposition(accept)


async def observe_engines(
    models: Iterable[ServedModel], metrics: Metrics, clock: Clock, timeout_s: float
) -> None:
    """Take over the present state of the models' engines."""
    for number, model in enumerate(models):
        if model.statuses is not None:
            for name, status in (await model.statuses()).items():
                metrics.observe_engine(status, name)
            continue
        try:
            status = await within(clock, timeout_s, model.engine.status())
        except TimeoutError:
            continue  # busy with a long step, maybe: its last known values stay
        except EngineStarting:
            status = EngineStatus(state="starting")
        except SteelyardError:
            status = EngineStatus(state="lost")
        metrics.observe_engine(status, str(number))

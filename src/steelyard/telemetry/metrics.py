"""All metrics of one service: what happened goes in, Prometheus text comes out.

`catalogue` says which metrics exist, `request_meter` and `engine_mirror` what changes them.
Nothing here listens on a port: the door serves `exposition`.
"""

import platform
import time
from collections.abc import Iterable
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from steelyard import __version__
from steelyard.contract import Clock, EngineStatus, RealClock
from steelyard.telemetry._instruments import Instruments, MetricsSnapshot
from steelyard.telemetry.access_meter import AccessMeter
from steelyard.telemetry.engine_mirror import EngineMirror
from steelyard.telemetry.failover_meter import FailoverMeter
from steelyard.telemetry.hardware import HardwareSample
from steelyard.telemetry.hardware_metrics import observe_hardware
from steelyard.telemetry.request_meter import ModelSeries, RequestMeter, TenantSeries
from steelyard.telemetry.service_meter import ServiceMeter

__all__ = ["CloseReason", "ConnectionMeter", "Metrics"]

CloseReason = Literal[
    "bad_request",
    "body_timeout",
    "client",
    "header_timeout",
    "idle_timeout",
    "limit",
    "server",
    "shutdown",
    "write_timeout",
]
"""Why a connection ended. `limit`: there were too many. `server`: after an answer, as agreed."""


class Metrics:
    """Owned by one event loop; no method blocks.

    `models` are the names served here: their series exist from the start, so that the first
    request is a rise from zero, and a flood of made-up names cannot take their place.
    """

    def __init__(self, *, clock: Clock | None = None, models: Iterable[str] = ()) -> None:
        """`clock` None: the real one."""
        self._clock = clock or RealClock()
        self._instruments = Instruments()
        self._models: dict[str, ModelSeries] = {}
        self._tenants: dict[str, TenantSeries] = {}
        self._engines: dict[str, EngineMirror] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self._instruments)
        self.access = AccessMeter(self._instruments)
        """What authentication and limits count."""
        self.failover = FailoverMeter(self._instruments)
        """What failover does."""
        self.service = ServiceMeter(self._instruments)
        """What happens to the service's own processes and settings."""
        for model in models:
            _ = self._model(model).spread
        about = (__version__, platform.python_version())
        self._instruments.gauge("steelyard_build_info", *about).set(1)
        self._instruments.gauge("steelyard_start_time_seconds").set(time.time())

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All values and their content type, in the format that an `Accept` header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def snapshot(self) -> MetricsSnapshot:
        """All values, for the process that answers for several (`merging`)."""
        return self._instruments.snapshot()

    def request(self, model: str, tenant: str = "default") -> RequestMeter:
        """Count an inference request as received and follow it."""
        return RequestMeter(self._model(model), self._tenant(tenant), self._clock)

    def connection(self) -> "ConnectionMeter":
        """Count a connection as accepted and follow it."""
        return ConnectionMeter(self._instruments)

    def http_response(self, route: str, status: int) -> None:
        """Count an answer. `route` is a route's template, never a client's path."""
        self._instruments.counter("steelyard_http_responses_total", route, str(status)).add()

    def observe_engine(self, status: EngineStatus, replica: str = "0") -> None:
        """Mirror a snapshot of one replica."""
        mirror = self._engines.get(replica)
        if mirror is None:
            mirror = self._engines[replica] = EngineMirror(self._instruments, replica)
        mirror.observe(status)

    def observe_hardware(self, sample: HardwareSample) -> None:
        """Take over one sample of the machine."""
        observe_hardware(self._instruments, sample)

    def _model(self, model: str) -> ModelSeries:
        name = self._instruments.label("model", model)
        series = self._models.get(name)
        if series is None:
            series = self._models[name] = ModelSeries(self._instruments, name)
        return series

    def _tenant(self, tenant: str) -> TenantSeries:
        name = self._instruments.label("tenant", tenant)
        series = self._tenants.get(name)
        if series is None:
            series = self._tenants[name] = TenantSeries(self._instruments, name)
        return series


class ConnectionMeter:
    """One connection of a client, from its opening to exactly one close."""

    __slots__ = ("_instruments", "_is_closed")

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments
        self._is_closed = False
        instruments.counter("steelyard_connections_accepted_total").add()
        instruments.gauge("steelyard_connections").add(1)

    def closed(self, reason: CloseReason) -> None:
        """The first reason counts; later calls change nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._instruments.counter("steelyard_connections_closed_total", reason).add()
        self._instruments.gauge("steelyard_connections").add(-1)

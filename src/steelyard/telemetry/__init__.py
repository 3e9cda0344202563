"""What is measured, and where it can be read: metrics, hardware samples, the log.

`Metrics` is the door for everything that happens, `HardwareSampler` watches the machine,
`configure_logging` sets the log up. No torch, no HTTP.
"""

from steelyard.telemetry._instruments import MetricsSnapshot
from steelyard.telemetry.access_meter import AccessMeter
from steelyard.telemetry.catalogue import CATALOGUE, Kind, MetricSpec
from steelyard.telemetry.gpu import find_gpus
from steelyard.telemetry.hardware import HardwareSample, ProcessProbe
from steelyard.telemetry.logging import configure_logging, request_context
from steelyard.telemetry.merging import MergedMetrics
from steelyard.telemetry.metrics import ConnectionMeter, Metrics
from steelyard.telemetry.request_meter import RequestMeter, StreamMeter
from steelyard.telemetry.sample_file import SampleFile
from steelyard.telemetry.sampler import HardwareSampler
from steelyard.telemetry.service_meter import ServiceMeter

__all__ = [
    "CATALOGUE",
    "AccessMeter",
    "ConnectionMeter",
    "HardwareSample",
    "HardwareSampler",
    "Kind",
    "MergedMetrics",
    "MetricSpec",
    "Metrics",
    "MetricsSnapshot",
    "ProcessProbe",
    "RequestMeter",
    "SampleFile",
    "ServiceMeter",
    "StreamMeter",
    "configure_logging",
    "find_gpus",
    "request_context",
]

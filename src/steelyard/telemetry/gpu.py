"""Reads every NVIDIA device through NVML, where a driver is there.

`NvmlApi` names the few calls that are used, with NVML's own names and units, so that tests put a
fake in its place. A machine without driver or device gives no samples and no error.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from steelyard.telemetry.hardware import GpuSample

__all__ = ["GpuProbe", "NoGpus", "NvmlApi", "NvmlProbe", "find_gpus"]

_LOG = logging.getLogger(__name__)
_TEMPERATURE_GPU = 0
_CLOCK_SM = 1

ValueT = TypeVar("ValueT")


class GpuProbe(Protocol):
    """Where samples of devices come from."""

    def sample(self) -> tuple[GpuSample, ...]:
        """Every device. May raise `OSError` when the driver is gone."""
        ...

    def close(self) -> None:
        """Let go of the driver. Safe to repeat."""
        ...


class NvmlApi(Protocol):
    """The part of NVML that is used: nvidia-ml-py's `pynvml` has it."""

    @property
    def NVMLError(self) -> type[Exception]: ...
    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetName(self, handle: Any) -> str: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        """`total` and `used` in bytes."""
        ...

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        """`gpu` in percent; not supported while MIG is on."""
        ...

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        """Degrees Celsius."""
        ...

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        """Milliwatts."""
        ...

    def nvmlDeviceGetClockInfo(self, handle: Any, clock: int) -> int:
        """Megahertz."""
        ...


class NoGpus:
    """A machine without devices."""

    def sample(self) -> tuple[GpuSample, ...]:
        return ()

    def close(self) -> None:
        pass


class NvmlProbe:
    """All devices that NVML shows. Create it through `find_gpus`."""

    def __init__(self, api: NvmlApi) -> None:
        """Raises the API's `NVMLError` when there is no driver."""
        self._api = api
        api.nvmlInit()
        self._is_open = True

    def sample(self) -> tuple[GpuSample, ...]:
        try:
            count = self._api.nvmlDeviceGetCount()
            return tuple(self._device(index) for index in range(count))
        except self._api.NVMLError as error:
            raise OSError(f"NVML: {error}") from error

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._told(self._api.nvmlShutdown)

    def _device(self, index: int) -> GpuSample:
        api = self._api
        device = api.nvmlDeviceGetHandleByIndex(index)
        memory = self._told(lambda: api.nvmlDeviceGetMemoryInfo(device))
        percent = self._told(lambda: api.nvmlDeviceGetUtilizationRates(device).gpu)
        milliwatts = self._told(lambda: api.nvmlDeviceGetPowerUsage(device))
        megahertz = self._told(lambda: api.nvmlDeviceGetClockInfo(device, _CLOCK_SM))
        return GpuSample(
            index=index,
            name=api.nvmlDeviceGetName(device),
            uuid=api.nvmlDeviceGetUUID(device),
            memory_bytes=None if memory is None else memory.total,
            memory_used_bytes=None if memory is None else memory.used,
            busy_ratio=None if percent is None else percent / 100,
            temperature_celsius=self._told(
                lambda: api.nvmlDeviceGetTemperature(device, _TEMPERATURE_GPU)
            ),
            power_watts=None if milliwatts is None else milliwatts / 1000,
            clock_hertz=None if megahertz is None else megahertz * 1e6,
        )

    def _told(self, read: Callable[[], ValueT]) -> ValueT | None:
        """One reading; None when this device does not support it."""
        try:
            return read()
        except self._api.NVMLError:
            return None


def find_gpus(load: Callable[[], NvmlApi] | None = None) -> GpuProbe:
    """A probe for the devices of this machine; `NoGpus` when there is no driver.

    `load` returns the API; None imports nvidia-ml-py.
    """
    try:
        api = (load or _import_pynvml)()
    except ImportError:
        return NoGpus()
    try:
        return NvmlProbe(api)
    except api.NVMLError as error:
        _LOG.debug("no GPU samples: %s", error)
        return NoGpus()


def _import_pynvml() -> NvmlApi:
    import pynvml  # 30 ms that a machine without GPU sampling need not pay

    api: NvmlApi = pynvml
    return api

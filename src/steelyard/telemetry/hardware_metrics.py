"""Puts one sample of the machine into gauges.

What is gone loses its series, so that a dead process does not keep its last memory for ever.
"""

from collections.abc import Mapping

from steelyard.telemetry._instruments import Instruments
from steelyard.telemetry.hardware import GpuSample, HardwareSample, HostSample, ProcessSample

__all__ = ["observe_hardware"]

_PROCESS_GAUGES = (
    "steelyard_process_resident_bytes",
    "steelyard_process_proportional_bytes",
    "steelyard_process_cpu_cores",
    "steelyard_process_threads",
)
_GPU_GAUGES = (
    "steelyard_gpu_info",
    "steelyard_gpu_memory_bytes",
    "steelyard_gpu_memory_used_bytes",
    "steelyard_gpu_busy_ratio",
    "steelyard_gpu_temperature_celsius",
    "steelyard_gpu_power_watts",
    "steelyard_gpu_clock_hertz",
)


def observe_hardware(instruments: Instruments, sample: HardwareSample) -> None:
    """Take over `sample`; values that it does not know (None) stay as they are."""
    instruments.counter("steelyard_hardware_samples_total").add()
    for source in sample.errors:
        instruments.counter("steelyard_hardware_sample_errors_total", source).add()
    if sample.host is not None:
        _set(instruments, _of_host(sample.host))
    for name in _PROCESS_GAUGES:
        instruments.keep_gauges(name, [process.role for process in sample.processes])
    for process in sample.processes:
        _set(instruments, _of_process(process), process.role)
    if "gpu" in sample.errors:
        return  # nothing is known of the devices, which is not the same as none being there
    for name in _GPU_GAUGES:
        instruments.keep_gauges(name, [str(gpu.index) for gpu in sample.gpus])
    for gpu in sample.gpus:
        index = str(gpu.index)
        instruments.gauge("steelyard_gpu_info", index, gpu.name, gpu.uuid).set(1)
        _set(instruments, _of_gpu(gpu), index)


def _set(instruments: Instruments, values: Mapping[str, float | None], *labels: str) -> None:
    for name, value in values.items():
        if value is not None:
            instruments.gauge(name, *labels).set(value)


def _of_host(host: HostSample) -> dict[str, float | None]:
    return {
        "steelyard_host_memory_bytes": host.memory_bytes,
        "steelyard_host_memory_available_bytes": host.memory_available_bytes,
        "steelyard_host_swap_used_bytes": host.swap_used_bytes,
        "steelyard_host_cpus": host.cpus,
        "steelyard_host_cpu_busy_ratio": host.cpu_busy_ratio,
    }


def _of_process(process: ProcessSample) -> dict[str, float | None]:
    return {
        "steelyard_process_resident_bytes": process.resident_bytes,
        "steelyard_process_proportional_bytes": process.proportional_bytes,
        "steelyard_process_cpu_cores": process.cpu_cores,
        "steelyard_process_threads": process.threads,
    }


def _of_gpu(gpu: GpuSample) -> dict[str, float | None]:
    return {
        "steelyard_gpu_memory_bytes": gpu.memory_bytes,
        "steelyard_gpu_memory_used_bytes": gpu.memory_used_bytes,
        "steelyard_gpu_busy_ratio": gpu.busy_ratio,
        "steelyard_gpu_temperature_celsius": gpu.temperature_celsius,
        "steelyard_gpu_power_watts": gpu.power_watts,
        "steelyard_gpu_clock_hertz": gpu.clock_hertz,
    }

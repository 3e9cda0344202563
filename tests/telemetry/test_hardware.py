"""Samples of host, processes and GPUs are true, and the absence of anything is no error."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from steelyard.telemetry import Metrics, ProcessProbe, find_gpus
from steelyard.telemetry.gpu import NoGpus, NvmlProbe
from steelyard.telemetry.hardware import GpuSample, HardwareSample, HostProbe, ProcessSample

from .conftest import Scrape


class FakeNvmlError(Exception):
    """What the fake raises, as NVML raises NVMLError."""


class FakeNvml:
    """Two devices; the second is a slice (MIG) that tells less."""

    NVMLError = FakeNvmlError

    def __init__(self) -> None:
        self.has_driver = True
        self.is_lost = False
        self.inits = 0

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise FakeNvmlError("Driver Not Loaded")
        self.inits += 1

    def nvmlShutdown(self) -> None:
        self.inits -= 1

    def nvmlDeviceGetCount(self) -> int:
        if self.is_lost:
            raise FakeNvmlError("GPU is lost")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "Fake H200"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=1000, used=250)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        self._needs_whole_device(handle)
        return SimpleNamespace(gpu=75)

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        assert sensor == 0
        return 60

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._needs_whole_device(handle)
        return 350_500

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:
        assert clock == 1
        return 1980

    def _needs_whole_device(self, handle: int) -> None:
        if handle == 1:
            raise FakeNvmlError("Not Supported")


_GPU_0 = GpuSample(0, "Fake H200", "GPU-0", 1000, 250, 0.75, 60, 350.5, 1.98e9)
_GPU_1 = GpuSample(1, "Fake H200", "GPU-1", 1000, 250, None, 60, None, 1.98e9)


def test_every_device_is_read_in_base_units() -> None:
    assert find_gpus(FakeNvml).sample() == (_GPU_0, _GPU_1)


def test_a_machine_without_driver_has_no_devices_and_no_error() -> None:
    api = FakeNvml()
    api.has_driver = False
    probe = find_gpus(lambda: api)
    assert isinstance(probe, NoGpus)
    assert probe.sample() == ()
    probe.close()


def test_a_lost_device_is_an_os_error_and_the_driver_is_released_once() -> None:
    api = FakeNvml()
    probe = NvmlProbe(api)
    api.is_lost = True
    with pytest.raises(OSError, match="GPU is lost"):
        probe.sample()
    probe.close()
    probe.close()
    assert api.inits == 0


def test_the_fake_has_what_the_real_library_has() -> None:
    pynvml = pytest.importorskip("pynvml")
    for name in vars(FakeNvml):
        if name.startswith(("nvml", "NVML")):
            assert hasattr(pynvml, name)
    assert pynvml.NVML_TEMPERATURE_GPU == 0
    assert pynvml.NVML_CLOCK_SM == 1


def test_the_devices_of_this_machine_can_be_asked_for() -> None:
    probe = find_gpus()
    assert all(gpu.name for gpu in probe.sample())
    probe.close()


def test_the_host_is_read_as_the_system_tells_it() -> None:
    probe = HostProbe()
    first = probe.sample()
    assert first.memory_bytes == psutil.virtual_memory().total
    assert 0 < first.memory_available_bytes <= first.memory_bytes
    assert first.cpus == os.cpu_count()
    assert first.cpu_busy_ratio is None
    spin_until = time.process_time() + 0.05
    while time.process_time() < spin_until:
        pass
    second = probe.sample()
    assert second.cpu_busy_ratio is not None
    assert 0 < second.cpu_busy_ratio <= 1


_HOLD_MEMORY = "import sys; held = b'x' * (64 << 20); print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def child() -> Any:
    """A process that holds 64 MiB until it is told to end."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD_MEMORY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_process_is_read_by_role_until_it_dies(child: Any) -> None:
    pids = {"gateway": os.getpid(), "engine-0": child.pid}
    probe = ProcessProbe(lambda: pids)
    samples = {sample.role: sample for sample in probe.sample()}
    engine = samples["engine-0"]
    assert engine.pid == child.pid
    assert engine.resident_bytes > 64 << 20
    if sys.platform == "linux":
        assert engine.proportional_bytes is not None
        assert 64 << 20 < engine.proportional_bytes <= engine.resident_bytes
    assert engine.threads >= 1
    child.kill()
    child.wait()
    assert [sample.role for sample in probe.sample()] == ["gateway"]


def test_processor_time_is_the_share_since_the_last_sample() -> None:
    now_s = [10.0]
    probe = ProcessProbe(lambda: {"me": os.getpid()}, now=lambda: now_s[0])
    assert probe.sample()[0].cpu_cores is None
    began_s = time.process_time()
    while time.process_time() < began_s + 0.1:
        pass
    now_s[0] += 0.2
    cores = probe.sample()[0].cpu_cores
    assert cores is not None
    assert 0.35 <= cores <= 1.5  # about 0.1 s in 0.2 s; the kernel counts in ticks of 10 ms


def test_a_new_process_in_an_old_role_starts_afresh(child: Any) -> None:
    pids = {"engine-0": os.getpid()}
    probe = ProcessProbe(lambda: pids)
    probe.sample()
    assert probe.sample()[0].cpu_cores is not None
    pids["engine-0"] = child.pid
    (sample,) = probe.sample()
    assert (sample.pid, sample.cpu_cores) == (child.pid, None)


def test_a_sample_becomes_gauges(metrics: Metrics) -> None:
    engine = ProcessSample("engine-0", 7, 100, 90, 1.5, 8)
    metrics.observe_hardware(HardwareSample(0.0, HostProbe().sample(), (engine,), (_GPU_0, _GPU_1)))
    scrape = Scrape(metrics)
    assert scrape.value("host_memory_bytes") == psutil.virtual_memory().total
    assert scrape.value("process_resident_bytes", process="engine-0") == 100
    assert scrape.value("process_proportional_bytes", process="engine-0") == 90
    assert scrape.value("process_cpu_cores", process="engine-0") == 1.5
    assert scrape.value("gpu_memory_used_bytes", gpu="1") == 250
    assert scrape.value("gpu_busy_ratio", gpu="0") == 0.75
    assert scrape.labels("gpu_busy_ratio", "gpu") == {"0"}
    assert scrape.value("gpu_info", gpu="1", name="Fake H200", uuid="GPU-1") == 1


def test_what_is_gone_loses_its_series_but_not_when_it_could_not_be_read(
    metrics: Metrics,
) -> None:
    engine = ProcessSample("engine-0", 7, 100, None, None, 8)
    metrics.observe_hardware(HardwareSample(0.0, None, (engine,), (_GPU_0,)))
    metrics.observe_hardware(HardwareSample(1.0, None, (), (), ("gpu",)))
    scrape = Scrape(metrics)
    assert scrape.labels("process_resident_bytes", "process") == set()
    assert scrape.labels("gpu_memory_bytes", "gpu") == {"0"}
    assert scrape.value("hardware_sample_errors_total", source="gpu") == 1
    metrics.observe_hardware(HardwareSample(2.0, None, (), ()))
    assert Scrape(metrics).labels("gpu_memory_bytes", "gpu") == set()

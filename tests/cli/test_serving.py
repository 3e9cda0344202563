"""`steelyard serve` from its banner to its end, with engine processes that make tokens up."""

import json
import os
import signal
import socket
import time

import pytest

from .stage import Command, Stage, is_gone, wait_for


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def at(port: int, command: Command) -> Command:
    """`command`, to be asked at `port` before its banner is there."""

    class Early(Command):
        port: int = 0

    early = Early(command.process, command._out, command._err)
    early.port = port
    return early


def test_it_tells_how_to_reach_it_and_keeps_standard_output_clean(stage: Stage) -> None:
    service = stage.serve()
    port = service.port
    banner = service.stderr
    for words in ("is ready after", "tiny", f"http://127.0.0.1:{port}/v1", "curl http://", "KV"):
        assert words in banner
    assert service.ask("/readiness") == (200, {"status": "ready"})
    assert service.stop() == 0
    assert service.stdout == ""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
def test_a_signal_lets_streams_finish_and_leaves_nothing_behind(stage: Stage, number: int) -> None:
    stage.fake_model(step_s=0.02)
    service = stage.serve()
    engine = service.engine_pid
    stream = service.stream(max_tokens=30)
    stream.first()
    service.send(number)
    *_, last = stream
    assert last == "[DONE]"
    assert service.wait() == 0
    assert is_gone(engine)
    assert stage.leftovers == []
    assert service.stdout == ""


def test_a_second_signal_does_not_wait_for_streams(stage: Stage) -> None:
    stage.fake_model(step_s=0.02)
    service = stage.serve()
    stream = service.stream(max_tokens=3000)
    stream.first()
    service.send(signal.SIGTERM)
    time.sleep(0.2)
    assert service.process.poll() is None
    service.send(signal.SIGTERM)
    *_, last = stream
    assert last["error"]["code"] == "shutting_down"
    assert service.wait(limit_s=5) == 0
    assert stage.leftovers == []


def test_a_second_signal_does_not_wait_for_an_engine_that_hangs(stage: Stage) -> None:
    service = stage.serve()
    engine = service.engine_pid
    assert service.port
    os.kill(engine, signal.SIGSTOP)
    service.send(signal.SIGINT)
    time.sleep(0.3)
    assert service.process.poll() is None, "the engine is asked to end first"
    service.send(signal.SIGINT)
    assert service.wait(limit_s=5) == 0
    assert is_gone(engine)


def test_while_the_engine_loads_the_door_lives_and_says_how_far_it_is(stage: Stage) -> None:
    stage.fake_model(load_s=60)
    port = free_port()
    service = at(port, stage.serve("--port", str(port)))
    wait_for(lambda: "pretending" in _readiness(service))
    assert service.ask("/health") == (200, {"status": "alive"})
    status, answer = service.ask("/readiness")
    assert status == 503
    assert answer["error"]["message"].startswith("Not ready: the engine is starting: pretending")
    status, answer = service.ask("/v1/completions", {"model": "tiny", "prompt": "x"})
    assert (status, answer["error"]["code"]) == (503, "engine_starting")
    assert "the engine is starting: pretending to load weights, " in answer["error"]["message"]
    started_s = time.monotonic()
    assert service.stop() == 0
    assert time.monotonic() - started_s < 5
    assert stage.leftovers == []
    assert "is ready" not in service.stderr


def _readiness(service: Command) -> str:
    try:
        return str(service.ask("/readiness"))
    except OSError:
        return ""


def test_a_killed_engine_comes_back_and_streams_hear_of_it(stage: Stage) -> None:
    stage.fake_model(step_s=0.02)
    service = stage.serve()
    engine, gateway = service.engine_pid, service.pid
    streams = [service.stream(max_tokens=3000) for _ in range(3)]
    for stream in streams:
        stream.first()
    assert service.metric('steelyard_engine_up{replica="0"}') == 1
    stage.fake_model(load_s=0.6)
    os.kill(engine, signal.SIGKILL)
    for stream in streams:
        events = list(stream)
        assert events[-1]["error"]["code"] == "engine_lost"
        assert "[DONE]" not in events
    wait_for(lambda: "was lost and is being restarted" in str(service.ask("/readiness")))
    assert service.metric('steelyard_engine_up{replica="0"}') == 0
    assert service.metric('steelyard_engine_state{replica="0",state="starting"}') == 1
    wait_for(service.is_ready)
    assert service.metric('steelyard_engine_up{replica="0"}') == 1
    assert service.metric('steelyard_engine_restarts_total{replica="0"}') == 1
    assert service.engine_pid != engine
    assert list(service.stream())[-1] == "[DONE]"
    assert service.pid == gateway
    assert service.stop() == 0


def test_an_engine_beyond_repair_ends_the_service_with_the_reason(stage: Stage) -> None:
    service = stage.serve()
    engine = service.engine_pid
    assert service.port
    (stage.folder / "fake.json").unlink()
    os.kill(engine, signal.SIGKILL)
    assert service.wait() == 1
    assert service.stderr.rstrip().endswith(
        f"error: {stage.folder}/fake.json: No such file or directory"
    )
    assert stage.leftovers == []


def test_an_engine_that_dies_at_its_start_is_tried_once_more_and_then_explained(
    stage: Stage,
) -> None:
    stage.fake_model(load_s=60)
    service = stage.serve()
    first = service.engine_pid
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: is_gone(first) and service.engine_pid != first)
    os.kill(service.engine_pid, signal.SIGKILL)
    assert service.wait() == 1
    *_, error, fix = service.stderr.splitlines()
    assert "was killed by SIGKILL" in error
    assert "memory" in fix and fix.startswith("Fix: ")
    assert stage.leftovers == []


def test_a_dead_door_leaves_no_engine_behind(stage: Stage) -> None:
    service = stage.serve()
    engine = service.engine_pid
    service.send(signal.SIGKILL)
    wait_for(lambda: is_gone(engine), limit_s=5)


def test_a_log_for_machines_holds_nothing_but_objects(stage: Stage) -> None:
    service = stage.serve("--set", "telemetry.log.format=json")
    service.await_stderr("/v1")
    assert service.stop() == 0
    lines = [json.loads(line) for line in service.stderr.splitlines()]
    ready = [line["message"] for line in lines if line["message"].startswith("ready after")]
    assert len(ready) == 1 and "tiny at http://127.0.0.1:" in ready[0]
    (stage.folder / "fake.json").unlink()
    broken = stage.run("serve", str(stage.model), "--port=0", "--set=telemetry.log.format=json")
    assert broken.process.returncode == 1
    last = json.loads(broken.stderr.splitlines()[-1])
    assert last["level"] == "critical"
    assert "fake.json" in last["message"]


def test_samples_of_host_door_and_engine_are_written_every_second(stage: Stage) -> None:
    file = stage.folder / "deep" / "samples.csv"
    service = stage.serve("--set", f"telemetry.sample_file={file}")
    engine = service.engine_pid
    assert service.port
    time.sleep(3.2)
    header, *rows = [line.split(",") for line in file.read_text().splitlines()]
    samples = [dict(zip(header, row, strict=True)) for row in rows]
    by_name = {
        name: [s for s in samples if s["name"] == name] for name in ("", "gateway", "engine-0")
    }
    for found in by_name.values():
        assert 3 <= len(found) <= 5
        assert all(int(sample["memory_used_bytes"]) > 1_000_000 for sample in found)
        assert all(float(sample["busy"]) >= 0 for sample in found[1:])
    assert {sample["pid"] for sample in by_name["gateway"]} == {str(service.pid)}
    assert {sample["pid"] for sample in by_name["engine-0"]} == {str(engine)}
    for process in ("gateway", "engine-0"):
        assert service.metric(f'steelyard_process_resident_bytes{{process="{process}"}}') > 1e6
    assert service.metric("steelyard_host_memory_available_bytes") > 1e6
    assert service.stop() == 0


def test_signals_that_are_ignored_stay_ignored(stage: Stage) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    service = stage.serve(preexec_fn=ignore)
    assert service.port
    service.send(signal.SIGHUP)
    service.send(signal.SIGINT)
    time.sleep(0.3)
    assert service.is_ready()
    assert service.stop() == 0

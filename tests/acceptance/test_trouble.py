"""An engine that is killed or stopped under load, and the end of a service that is busy."""

import os
import signal
import time

from tests.cli.stage import is_gone, wait_for

from .conftest import MODEL, START_LIMIT_S, Service


def test_a_killed_engine_costs_its_streams_and_comes_back(rough_service: Service) -> None:
    service = rough_service
    gateway, engine = service.pid, service.engine_pid
    streams = [service.stream(model=MODEL, max_tokens=1_900) for _ in range(4)]
    for stream in streams:
        stream.first()
    os.kill(engine, signal.SIGKILL)
    for stream in streams:
        events = list(stream)
        assert events[-1]["error"]["code"] == "engine_lost"
        assert "[DONE]" not in events
    status, refused = service.ask("/readiness")
    assert status == 503 and "restarted" in refused["error"]["message"]
    status, refused = service.ask("/v1/completions", {"model": MODEL, "prompt": "x"})
    assert (status, refused["error"]["code"]) == (503, "engine_starting")
    wait_for(service.is_ready, limit_s=START_LIMIT_S)
    assert list(service.stream(model=MODEL))[-1] == "[DONE]"
    assert service.process.poll() is None and service.pid == gateway
    assert service.engine_pid != engine


def test_a_stopped_engine_fails_its_requests_while_the_door_lives(rough_service: Service) -> None:
    service = rough_service
    engine = service.engine_pid
    stream = service.stream(model=MODEL, max_tokens=1_900)
    stream.first()
    os.kill(engine, signal.SIGSTOP)
    try:
        stopped_s = time.monotonic()
        assert service.ask("/health") == (200, {"status": "alive"})
        status, refused = service.ask("/readiness")
        assert status == 503 and "does not answer" in refused["error"]["message"]
        *_, last = stream
        assert last["error"]["code"] == "engine_stalled"
        assert 2 < time.monotonic() - stopped_s < 8
        started_s = time.monotonic()
        assert service.ask("/health")[0] == 200
        assert time.monotonic() - started_s < 1
    finally:
        os.kill(engine, signal.SIGCONT)
    wait_for(service.is_ready, limit_s=10)
    assert list(service.stream(model=MODEL))[-1] == "[DONE]"
    assert service.engine_pid == engine, "it was only slow"


def test_sigterm_lets_running_streams_finish(rough_service: Service) -> None:
    service = rough_service
    engine = service.engine_pid
    streams = [service.stream(model=MODEL, max_tokens=150) for _ in range(3)]
    for stream in streams:
        stream.first()
    service.send(signal.SIGTERM)
    for stream in streams:
        *_, last = stream
        assert last == "[DONE]"
    assert service.wait() == 0
    assert is_gone(engine)
    assert service.stdout == ""

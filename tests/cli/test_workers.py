"""The door in several processes, as `steelyard serve --workers` runs it: real processes."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
import yaml

from tests.gateway.limits.redis_process import redis_process

from .stage import Command, Stage, ask, is_gone, wait_for, words_of
from .test_serving import free_port

PROMPT = {"model": "tiny", "prompt": "hello", "max_tokens": 4, "ignore_eos": True}


def serve(stage: Stage, tree: dict[str, Any] | None = None, *arguments: str) -> Command:
    file = stage.folder / "deployment.yaml"
    file.write_text(yaml.safe_dump(tree or {}) if tree else "{}\n")
    return stage.serve("--workers", "2", "--config", str(file), *arguments)


def workers(service: Command) -> list[int]:
    children = psutil.Process(service.pid).children(recursive=True)
    return [child.pid for child in children if "steelyard.cli.worker" in words_of(child)]


def test_two_processes_serve_one_port_and_one_engine_and_count_together(stage: Stage) -> None:
    service = serve(stage)
    assert service.port
    first, second = workers(service)
    assert service.metric("steelyard_workers") == 2
    with ThreadPoolExecutor(8) as pool:  # each request is a connection of its own
        answers = list(pool.map(lambda _: service.ask("/v1/completions", PROMPT), range(40)))
    assert {status for status, _ in answers} == {200}
    busy = [psutil.Process(pid).cpu_times().user for pid in (first, second)]
    finished = 'steelyard_requests_ended_total{model="tiny",outcome="finished",reason="length"}'
    assert service.metric(finished) == 40
    assert service.metric('steelyard_engine_up{replica="0"}') == 1
    assert all(seconds > 0 for seconds in busy)
    assert service.stop() == 0
    assert all(is_gone(pid) for pid in (first, second))
    assert stage.leftovers == []


def test_a_killed_worker_is_replaced_and_nothing_it_counted_is_lost(stage: Stage) -> None:
    service = serve(stage)
    assert service.port
    victim, other = workers(service)
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: len(set(workers(service)) - {victim, other}) == 1)
    wait_for(lambda: service.metric("steelyard_worker_restarts_total") == 1)
    wait_for(lambda: service.metric("steelyard_workers") == 2)
    statuses = {service.ask("/v1/completions", PROMPT)[0] for _ in range(10)}
    assert statuses == {200}
    assert service.stop() == 0


@pytest.mark.slow
def test_settings_change_in_all_workers_or_in_none(stage: Stage) -> None:
    admin = free_port()
    gateway = {"admin": {"port": admin}}
    service = serve(stage, {"gateway": gateway})
    assert service.port
    file = stage.folder / "deployment.yaml"

    def statuses(count: int = 16) -> set[int]:
        return {service.ask("/v1/completions", PROMPT)[0] for _ in range(count)}

    assert statuses() == {200}
    file.write_text(yaml.safe_dump({"gateway": {**gateway, "limits": {"max_tokens": 3}}}))
    assert ask(admin, "/admin/reload", {})[1]["outcome"] == "applied"
    assert statuses() == {400}
    keys = {"auth": {"mode": "api_keys", "keys_file": str(stage.folder / "missing")}}
    file.write_text(yaml.safe_dump({"gateway": {**gateway, **keys}}))
    answer = ask(admin, "/admin/reload", {})[1]
    assert answer["outcome"] == "refused"
    assert "gateway.auth.keys_file" in answer["error"]
    assert statuses() == {400}
    os.kill(workers(service)[0], signal.SIGKILL)
    wait_for(lambda: ask(admin, "/admin/status")[1]["workers"] == 2)
    assert statuses() == {400}, "a new worker follows the settings in force"
    assert service.stop() == 0


@pytest.mark.slow
def test_streams_finish_before_the_workers_end(stage: Stage) -> None:
    stage.fake_model(step_s=0.02)
    service = serve(stage)
    streams = [service.stream(max_tokens=30) for _ in range(4)]
    for stream in streams:
        stream.first()
    service.send(signal.SIGTERM)
    for stream in streams:
        *_, last = stream
        assert last == "[DONE]"
    assert service.wait() == 0
    assert stage.leftovers == []


@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_keeper(stage: Stage) -> None:
    service = serve(stage)
    assert service.port
    pids = workers(service)
    service.send(signal.SIGKILL)
    wait_for(lambda: all(is_gone(pid) for pid in pids), limit_s=5)


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_streams_of_workers(stage: Stage) -> None:
    stage.fake_model(step_s=0.02)
    service = serve(stage)
    stream = service.stream(max_tokens=3000)
    stream.first()
    service.send(signal.SIGTERM)
    service.process.poll()
    wait_for(lambda: "worker-0" in service.stderr)
    service.send(signal.SIGTERM)
    *_, last = stream
    assert last["error"]["code"] == "shutting_down"
    assert service.wait(limit_s=10) == 0


@pytest.mark.slow
def test_workers_share_the_tenants_budgets_through_redis(stage: Stage) -> None:
    with redis_process() as redis:
        shared = {"url": f"unix://{redis.path}", "timeout_s": 2.0}
        limits = {"requests_per_minute": 5}
        service = serve(stage, {"tenants": {"default": limits, "redis": shared}})
        statuses = [service.ask("/v1/completions", PROMPT)[0] for _ in range(20)]
        assert sorted(statuses) == [200] * 5 + [429] * 15
        assert service.metric('steelyard_limits_store_up{store="redis"}') == 1
        assert "counts the tenants' budgets on its own" not in service.stderr
        assert service.stop() == 0

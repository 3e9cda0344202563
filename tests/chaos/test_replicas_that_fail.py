"""Replicas are killed and stopped under streams; clients must not be able to tell.

Real processes, sockets and signals. By default engine processes make tokens up, each a hash of the
one before, so that a wrong continuation shows at once; `slow` ones compute a real model.
"""

import contextlib
import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from ..cli.stage import Command, Stage, wait_for
from .clients import Crowd

STALL_S = 0.5
STATES = "absent", "ejected", "healthy", "returning", "suspect"


def engines(service: Command) -> list[int]:
    """Processes of the engines."""
    children = psutil.Process(service.pid).children(recursive=True)
    return [c.pid for c in children if "steelyard.engine.process" in c.cmdline()]


def busiest(service: Command) -> tuple[str, int]:
    """Name and process of the replica that runs the most."""
    names = [f"main/{number}" for number in range(3)]
    running = {n: service.metric(f'steelyard_engine_running{{replica="{n}"}}') for n in names}
    name = max(names, key=lambda name: running[name])
    return name, pid_of(service, name)


def pid_of(service: Command, name: str) -> int:
    """The process that listens on this replica's socket."""
    socket = name.replace("/", "-") + ".sock"
    for pid in engines(service):
        with contextlib.suppress(psutil.Error):
            if any(c.laddr.endswith(socket) for c in psutil.Process(pid).net_connections("unix")):
                return pid
    raise AssertionError(f"nobody listens for {name}")


def state(service: Command, name: str) -> str:
    for state in STATES:
        if service.metric(f'steelyard_replica_health{{replica="{name}",state="{state}"}}') == 1:
            return state
    return ""


def moves(service: Command) -> float:
    """Requests that went on at another replica, whatever the reason."""
    _, text = service.ask("/metrics")
    rows = [row for row in text.splitlines() if row.startswith("steelyard_failover_moves_total{")]
    return sum(float(row.rpartition(" ")[2]) for row in rows)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Keep a process from doing anything."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def service(stage: Stage) -> Command:
    """Three replicas, ready."""
    stage.fake_model(step_s=0.01)
    service = stage.serve("--set", "replicas=3", "--set", f"failover.stall_floor_s={STALL_S}")
    wait_for(service.is_ready)
    wait_for(lambda: all(state(service, f"main/{n}") for n in range(3)))
    return service


def test_a_killed_replica_is_not_noticed_by_any_stream(service: Command) -> None:
    prompts = [f"story {number}" for number in range(12)]
    crowd = Crowd(service.port, prompts, model="tiny", max_tokens=100)
    crowd.wait_streaming()
    name, pid = busiest(service)
    os.kill(pid, signal.SIGKILL)
    answers = crowd.wait()

    assert moves(service) >= 3
    assert max(answer.largest_gap_s for answer in answers) < 1.0
    assert all(answer.usage["completion_tokens"] == 100 for answer in answers)
    undisturbed = Crowd(service.port, prompts, model="tiny", max_tokens=100).wait()
    for answer, expected in zip(answers, undisturbed, strict=True):
        assert _without_cache(answer.outcome) == _without_cache(expected.outcome)
    wait_for(lambda: state(service, name) in ("healthy", "returning"))
    assert service.metric(f'steelyard_engine_restarts_total{{replica="{name}"}}') == 1


@pytest.mark.slow
def test_a_stopped_replica_costs_one_stall_and_returns(service: Command) -> None:
    prompts = [f"story {number}" for number in range(9)]
    crowd = Crowd(service.port, prompts, model="tiny", max_tokens=150)
    crowd.wait_streaming()
    name, pid = busiest(service)
    with stopped(pid):
        answers = crowd.wait()
        wait_for(lambda: state(service, name) == "ejected")
    for answer in answers:
        assert answer.outcome[1]["completion_tokens"] == 150
    gap_s = max(answer.largest_gap_s for answer in answers)
    assert STALL_S * 0.9 <= gap_s <= STALL_S + 0.5
    wait_for(lambda: state(service, name) in ("healthy", "returning"))
    assert pid in engines(service), "it is the same process"


@pytest.mark.slow
def test_sixty_streams_of_a_real_model_outlive_a_replica_token_by_token(stage: Stage) -> None:
    from ..cli.stage import REAL

    stage.variables |= {"STEELYARD_CACHE_DIR": str(_real_cache())}
    service = stage.start("serve", "--port", "0", "--set", "replicas=3", program=REAL)
    wait_for(service.is_ready, limit_s=120)
    wait_for(lambda: all(state(service, f"main/{n}") for n in range(3)))
    prompts = [f"Story {number}: once upon a time" for number in range(60)]
    fields = {"model": "smollm2-135m", "max_tokens": 40}
    undisturbed = Crowd(service.port, prompts, **fields).wait(limit_s=300)

    crowd = Crowd(service.port, prompts, **fields)
    crowd.wait_streaming()
    _, pid = busiest(service)
    os.kill(pid, signal.SIGKILL)
    answers = crowd.wait(limit_s=300)

    assert moves(service) >= 10
    for answer, expected in zip(answers, undisturbed, strict=True):
        assert _without_cache(answer.outcome) == _without_cache(expected.outcome)


def _without_cache(outcome: tuple[str, dict[str, int], str | None]) -> tuple[object, ...]:
    """All but the cached tokens, which depend on who was asked before."""
    text, usage, finish_reason = outcome
    return text, usage["prompt_tokens"], usage["completion_tokens"], finish_reason


def _real_cache() -> object:
    from steelyard.settings.paths import default_cache_dir, environment

    return default_cache_dir(environment())

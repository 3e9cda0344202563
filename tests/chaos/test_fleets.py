"""`steelyard up` and what operators ask of it, with real processes that make tokens up."""

import os
import signal
from collections.abc import Iterator

import msgspec
import psutil
import pytest

from ..cli.stage import Command, Stage, is_gone, wait_for
from .clients import Crowd


@pytest.fixture
def fleet(stage: Stage) -> Iterator[Stage]:
    """A stage whose fleet is ended after the test, whatever has become of its supervisor."""
    stage.variables["XDG_DATA_HOME"] = str(stage.folder / "d")
    stage.fake_model(step_s=0.01)
    yield stage
    order(stage, "down")


def up(fleet: Stage, *sets: str) -> Command:
    """A running fleet of three, unless `sets` say otherwise; ready."""
    sets = ("gateway.port=0", *(sets or ("replicas=3",)))
    more = [word for key in sets for word in ("--set", key)]
    service = fleet.start("up", str(fleet.model), *more)
    assert service.port
    return service


def order(fleet: Stage, *words: str) -> Command:
    """Run one command against the fleet; it must work."""
    command = fleet.run(*words, "--set", f"model={fleet.model}")
    assert command.process.returncode == 0, command.stderr
    return command


def replicas(fleet: Stage) -> dict[str, dict[str, object]]:
    """What `status` says of each."""
    answer = msgspec.json.decode(order(fleet, "status", "--json").stdout)
    return {replica["name"]: replica for replica in answer["replicas"]}


def roles(fleet: Stage) -> dict[str, object]:
    return {name: replica["role"] for name, replica in replicas(fleet).items()}


def test_replicas_outlive_their_supervisor_and_are_taken_over(fleet: Stage) -> None:
    service = up(fleet)
    before = {name: replica["pid"] for name, replica in replicas(fleet).items()}
    service.send(signal.SIGKILL)
    service.wait()
    assert all(psutil.pid_exists(pid) for pid in before.values())
    successor = up(fleet)
    assert {name: replica["pid"] for name, replica in replicas(fleet).items()} == before
    assert list(successor.stream())[-1] == "[DONE]"
    order(fleet, "down")
    assert successor.wait() == 0
    assert all(is_gone(pid) for pid in before.values())


@pytest.mark.slow
def test_orders_change_replicas_under_streams_that_do_not_notice(fleet: Stage) -> None:
    service = up(fleet, "replicas=2", "failover.drain_s=0.2")
    pid = replicas(fleet)["main/0"]["pid"]
    prompts = [f"story {number}" for number in range(8)]
    crowd = Crowd(service.port, prompts, model="tiny", max_tokens=300)
    crowd.wait_streaming()
    order(fleet, "drain", "main/1")
    assert roles(fleet) == {"main/0": "serving", "main/1": "drained"}
    refused = fleet.run("drain", "main/0", "--set", f"model={fleet.model}")
    assert refused.process.returncode == 1 and "only replica that serves" in refused.stderr
    order(fleet, "resume", "main/1")
    order(fleet, "restart", "main/0")
    order(fleet, "scale", "main", "3")
    assert roles(fleet) == dict.fromkeys(("main/0", "main/1", "main/2"), "serving")
    order(fleet, "scale", "main", "1")
    assert set(replicas(fleet)) == {"main/0"}
    assert replicas(fleet)["main/0"]["pid"] != pid
    for answer in crowd.wait():
        assert answer.outcome[1]["completion_tokens"] == 300


@pytest.mark.slow
def test_a_standby_takes_over_and_the_lost_one_becomes_the_standby(fleet: Stage) -> None:
    service = up(fleet, "groups.a.replicas=1", "groups.b.replicas=1", "groups.b.standby_of=a")
    wait_for(lambda: replicas(fleet)["b/0"]["phase"] == "ready")
    assert roles(fleet) == {"a/0": "serving", "b/0": "standby"}
    crowd = Crowd(service.port, ["one", "two"], model="tiny", max_tokens=200)
    crowd.wait_streaming()
    os.kill(int(str(replicas(fleet)["a/0"]["pid"])), signal.SIGKILL)
    answers = crowd.wait()
    assert [answer.outcome[1]["completion_tokens"] for answer in answers] == [200, 200]
    assert max(answer.largest_gap_s for answer in answers) < 1.0
    assert roles(fleet) == {"a/0": "standby", "b/0": "serving"}


@pytest.mark.slow
def test_a_stale_primary_that_wakes_up_serves_nobody(fleet: Stage) -> None:
    service = up(fleet, "groups.a.replicas=1", "groups.b.replicas=1", "groups.b.standby_of=a")
    wait_for(lambda: replicas(fleet)["b/0"]["phase"] == "ready")
    crowd = Crowd(service.port, ["one", "two"], model="tiny", max_tokens=150)
    crowd.wait_streaming()
    stale = int(str(replicas(fleet)["a/0"]["pid"]))
    os.kill(stale, signal.SIGSTOP)
    try:
        answers = crowd.wait()
    finally:
        os.kill(stale, signal.SIGCONT)
    for answer in answers:
        assert answer.outcome[1]["completion_tokens"] == 150
    assert roles(fleet) == {"a/0": "standby", "b/0": "serving"}
    started = service.metric(
        'steelyard_engine_requests_ended_total{outcome="finished",replica="a/0"}'
    )
    assert list(service.stream())[-1] == "[DONE]"
    finished = 'steelyard_engine_requests_ended_total{outcome="finished",replica="a/0"}'
    assert service.metric(finished) == started


@pytest.mark.slow
def test_a_drill_reports_what_streams_have_seen(fleet: Stage) -> None:
    up(fleet)
    drill = fleet.run("drill", "kill", "main/1", "--set", f"model={fleet.model}")
    assert drill.process.returncode == 0, drill.stderr + drill.stdout
    assert "SIGKILL to main/1" in drill.stdout
    assert "12 streams: 0 failed, 0 tokens lost, 0 repeated, 0 with other usage" in drill.stdout

"""Settings are read again while the service runs: all of what can change, or nothing."""

import fcntl
import os
import pty
import signal
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from steelyard.cli.reloading import Origin, Reloader
from steelyard.contract import VirtualClock
from steelyard.contract.errors import SettingsError
from steelyard.settings import Deployment, resolve
from steelyard.telemetry import Metrics

from .stage import Command, Stage, wait_for

PROMPT = {"model": "tiny", "prompt": "hello", "max_tokens": 4}


class World:
    """A deployment file, a reloader, and what it has applied."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "deployment.yaml"
        self.environ = {"HOME": str(folder)}
        self.metrics = Metrics()
        self.applied: list[Deployment] = []
        self.trouble: SettingsError | None = None
        self.clock = VirtualClock()
        self.write()

    def write(self, **tree: Any) -> None:
        self.file.write_text(yaml.safe_dump(tree))

    def reloader(self) -> Reloader:
        def read() -> Any:
            return resolve(file=self.file, environ=self.environ)

        return Reloader(
            read(),
            Origin(self.file, read),
            apply=self._apply,
            meter=self.metrics.service,
            clock=self.clock,
        )

    async def _apply(self, deployment: Deployment) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.applied.append(deployment)

    def metric(self, series: str) -> float:
        for line in self.metrics.exposition()[0].decode().splitlines():
            if line.startswith(f"{series} "):
                return float(line.rpartition(" ")[2])
        return 0.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_what_can_change_does_and_what_cannot_is_named(world: World) -> None:
    reloader = world.reloader()
    world.write(
        gateway={"limits": {"max_tokens": 7}, "port": 9999},
        tenants={"named": {"team-a": {"requests_per_minute": 3}}},
    )
    done = await reloader.reload()
    assert done.outcome == "applied"
    assert "gateway.limits.max_tokens" in done.applied
    assert "tenants.named.team-a.requests_per_minute" in done.applied
    assert done.waiting == ("gateway.port",)
    (deployment,) = world.applied
    assert deployment.gateway.limits.max_tokens == 7
    assert deployment.gateway.port == 8000, "nobody is told of what did not happen"
    assert world.metric("steelyard_config_restart_needed") == 1
    assert (await reloader.reload()).waiting == ("gateway.port",), "it is still to be done"
    world.write()
    assert (await reloader.reload()).waiting == ()
    assert world.applied[-1].gateway.limits.max_tokens is None
    assert world.metric("steelyard_config_restart_needed") == 0


@pytest.mark.parametrize(
    "text",
    ["gateway: {limits: {max_tokns: 1}}", "gateway: [", "\x00", "gateway: {port: -1}", None],
)
async def test_a_bad_file_changes_nothing_and_says_why(world: World, text: str | None) -> None:
    reloader = world.reloader()
    if text is None:
        world.file.unlink()
    else:
        world.file.write_text(text)
    done = await reloader.reload()
    assert done.outcome == "refused"
    assert done.error
    assert not world.applied
    assert world.metric("steelyard_config_reload_ok") == 0
    assert world.metric('steelyard_config_reloads_total{outcome="refused"}') == 1
    world.write(gateway={"limits": {"max_tokens": 7}})
    assert (await reloader.reload()).outcome == "applied"
    assert world.metric("steelyard_config_reload_ok") == 1


async def test_settings_that_the_door_cannot_follow_are_not_half_in_force(world: World) -> None:
    reloader = world.reloader()
    world.write(gateway={"limits": {"max_tokens": 7}})
    world.trouble = SettingsError("the keys cannot be had", param="gateway.auth.jwt.jwks_url")
    done = await reloader.reload()
    assert (done.outcome, done.applied) == ("refused", ())
    assert done.error is not None and "gateway.auth.jwt.jwks_url" in done.error
    world.trouble = None
    assert (await reloader.reload()).outcome == "applied", "it is tried again"


async def test_the_locks_do_not_come_off_before_the_door_is_out_of_reach(world: World) -> None:
    auth = {"mode": "api_keys", "keys_file": str(world.file)}
    world.write(gateway={"host": "0.0.0.0", "auth": auth})
    reloader = world.reloader()
    world.write(gateway={"host": "127.0.0.1"})
    done = await reloader.reload()
    assert done.outcome == "refused"
    assert done.error is not None and "can be reached from other machines" in done.error
    assert not world.applied


async def test_an_unchanged_file_is_not_applied(world: World) -> None:
    reloader = world.reloader()
    world.file.write_text("# a comment\n")
    assert (await reloader.reload()).outcome == "unchanged"
    assert not world.applied


# A running service.


def serve(stage: Stage, **gateway: Any) -> tuple[Command, Callable[..., None]]:
    """A service, and how to write its file anew."""
    file = stage.folder / "deployment.yaml"

    def write(**changed: Any) -> None:
        tree = {"backend": "fake", "gateway": changed}
        beside = file.with_suffix(".new")
        beside.write_text(yaml.safe_dump(tree))
        beside.replace(file)

    write(**gateway)
    return stage.serve("--config", str(file)), write


def allows(service: Command, max_tokens: int) -> bool:
    return service.ask("/v1/completions", {**PROMPT, "max_tokens": max_tokens})[0] == 200


def test_a_changed_file_and_a_signal_are_noticed_and_a_bad_file_is_not_obeyed(
    stage: Stage,
) -> None:
    service, write = serve(stage)
    assert allows(service, 4)
    write(limits={"max_tokens": 3})
    wait_for(lambda: not allows(service, 4), limit_s=10)
    assert "gateway.limits.max_tokens" in service.stderr
    (stage.folder / "deployment.yaml").write_text("gateway: {limits: nonsense}\n")
    service.send(signal.SIGHUP)
    wait_for(lambda: "refused" in service.stderr, limit_s=10)
    assert not allows(service, 4) and allows(service, 3)
    assert service.metric("steelyard_config_reload_ok") == 0
    write(limits={"max_tokens": 5})
    started_s = time.monotonic()
    service.send(signal.SIGHUP)
    wait_for(lambda: allows(service, 5), limit_s=10)
    assert time.monotonic() - started_s < 1.5, "a signal is obeyed at once"
    assert service.process.poll() is None
    assert service.stop() == 0


def test_streams_go_on_while_the_rules_change(stage: Stage) -> None:
    stage.fake_model(step_s=0.02)
    file = stage.folder / "deployment.yaml"
    file.write_text("gateway: {limits: {max_tokens: 100}}\n")
    service = stage.serve("--config", str(file))
    stream = service.stream(max_tokens=60)
    stream.first()
    file.write_text("gateway: {limits: {max_tokens: 1}}\n")
    service.send(signal.SIGHUP)
    wait_for(lambda: not allows(service, 2), limit_s=10)
    *_, last = stream
    assert last == "[DONE]"
    assert service.stop() == 0


def test_a_closed_terminal_still_ends_the_service(stage: Stage) -> None:
    service, terminal = serve_in_terminal(stage)
    service.send(signal.SIGHUP)  # by somebody else: the terminal is still there
    wait_for(lambda: "read again" in service.stderr, limit_s=10)
    assert service.process.poll() is None
    os.close(terminal)
    assert service.wait(limit_s=10) == 0


def serve_in_terminal(stage: Stage) -> tuple[Command, int]:
    """A service with a deployment file on a pseudo-terminal, and the terminal's other end."""
    ours, theirs = pty.openpty()
    file = stage.folder / "deployment.yaml"
    file.write_text("backend: fake\n")

    def adopt_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    command = stage.serve("--config", str(file), preexec_fn=adopt_terminal)
    os.close(theirs)
    assert command.port
    return command, ours

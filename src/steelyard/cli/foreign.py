"""Wiring of engines that are not ours: endpoints that others run, and servers that we start.

Concrete classes meet here as in `wiring`, which takes this for such back ends.
"""

import contextlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steelyard.backends.http.client import HttpClient
from steelyard.backends.http.config import HttpConfig
from steelyard.backends.http.engine import HttpEngine
from steelyard.backends.remote import RemoteConfig, RemoteDialect
from steelyard.backends.remote.config import Mode
from steelyard.backends.sglang import SglangDialect, sglang_command
from steelyard.backends.vllm import VllmDialect, vllm_command, vllm_environment
from steelyard.cli.loading import LoadedFiles
from steelyard.cli.replicas import Replicas, failover_config, posts
from steelyard.cli.server_plans import device_environment, server_plan
from steelyard.contract import Clock, RealClock
from steelyard.contract.errors import SettingsError
from steelyard.fleet.config import RestartPolicy
from steelyard.fleet.crew import Crew, Hand, Post
from steelyard.fleet.elsewhere import ElsewhereLauncher
from steelyard.fleet.guardian import guarded_command
from steelyard.fleet.process import Launcher, LocalLauncher
from steelyard.fleet.replica import Replica, ReplicaStatus
from steelyard.gateway.failover import FailoverEngine
from steelyard.settings import Deployment, Resolved, read_secret
from steelyard.settings.foreign import without_api_path
from steelyard.settings.paths import expanded
from steelyard.telemetry import Metrics

__all__ = ["ForeignHire", "cannot_outlive", "is_foreign", "make_foreign_replicas"]

_KEY_FILE = "remote.api_key_file"
_MIN_KEY_BYTES = 8


def is_foreign(deployment: Deployment) -> bool:
    """Whether the engine is none of ours."""
    return deployment.backend in _HIRES


@dataclass(frozen=True, slots=True)
class ForeignHire:
    """Makes the keepers of a deployment's foreign engines, one for each post."""

    resolved: Resolved
    files: LoadedFiles
    folder: Path
    """Private; for sockets."""
    policy: RestartPolicy
    on_change: Callable[[ReplicaStatus], None]
    clock: Clock = field(default_factory=RealClock)

    def __call__(self, post: Post) -> Hand:
        """See `fleet.crew.Hire`."""
        return _HIRES[self.resolved.deployment.backend](self, post)

    @property
    def posts(self) -> list[Post]:
        """Every replica's place, in the order of the file."""
        return posts(self.resolved.deployment.replica_groups)

    def ordinal(self, post: Post) -> int:
        """Its number among all, from 0."""
        return self.posts.index(post)

    def only(self) -> Hand:
        """The only one of a deployment of one."""
        return self(self.posts[0])


def cannot_outlive(deployment: Deployment) -> SettingsError:
    """Why `steelyard up` does not keep them."""
    return SettingsError(
        f"replicas of backend = {deployment.backend} cannot outlive the command that serves them",
        param="backend",
        fix="use `steelyard serve`",
    )


def make_foreign_replicas(hire: ForeignHire, metrics: Metrics) -> Replicas:
    """All of a deployment as one engine; nothing is started."""
    deployment = hire.resolved.deployment
    engine = FailoverEngine(
        failover_config(deployment),
        meter=metrics.failover,
        clock=hire.clock,
        on_status=lambda name, status: metrics.observe_engine(status, name),
    )
    crew = Crew(hire.posts, roster=engine, hire=hire)
    return Replicas(engine, crew, addresses={})


def _endpoint(hire: ForeignHire, post: Post) -> Hand:
    deployment = hire.resolved.deployment
    remote = deployment.remote
    key = remote.api_key_file
    config = HttpConfig(
        url=without_api_path(remote.urls[hire.ordinal(post)]),
        api_key=None if key is None else _api_key(key),
        ca_file=None if remote.ca_file is None else str(expanded(remote.ca_file)),
        connect_timeout_s=remote.connect_timeout_s,
        silence_timeout_s=remote.silence_timeout_s,
    )
    dialect = RemoteDialect(_remote_config(hire, remote.model, remote.mode), hire.files.text)
    engine = HttpEngine(HttpClient(config), dialect, clock=hire.clock)
    launcher = ElsewhereLauncher(post.name)
    engine.on_refusal = launcher.refuse
    return _hand(hire, post, engine, launcher)


def _vllm(hire: ForeignHire, post: Post) -> Hand:
    section, ordinal = hire.resolved.deployment.vllm, hire.ordinal(post)
    assert section.python is not None, "the rules ask for it"
    plan = server_plan(hire.resolved, section, hire.files.checkpoint, ordinal)
    path = str(hire.folder / f"{post.file_name}.sock")
    policy = hire.policy
    command = guarded_command(
        vllm_command(plan, _whole(section.python), path),
        vllm_environment(plan, ready_s=policy.start_timeout_s) | device_environment(plan, ordinal),
        folder=str(hire.folder),
        grace_s=policy.stop_grace_s,
        socket=path,
    )
    text = hire.files.text
    client = HttpClient(HttpConfig(unix_path=path))
    dialect = VllmDialect(
        _remote_config(hire, None, "tokens"), text, max_running=plan.max_running or 0
    )
    engine = HttpEngine(client, dialect, clock=hire.clock)
    return _hand(hire, post, engine, LocalLauncher(post.name, command))


def _sglang(hire: ForeignHire, post: Post) -> Hand:
    section, ordinal = hire.resolved.deployment.sglang, hire.ordinal(post)
    assert section.python is not None, "the rules ask for it"
    plan = server_plan(hire.resolved, section, hire.files.checkpoint, ordinal)
    port = _free_port()
    command = guarded_command(
        sglang_command(plan, _whole(section.python), port),
        device_environment(plan, ordinal),
        folder=str(hire.folder),
        grace_s=hire.policy.stop_grace_s,
    )
    client = HttpClient(HttpConfig(url=f"http://127.0.0.1:{port}"))
    dialect = SglangDialect(_remote_config(hire, None, "tokens"))
    engine = HttpEngine(client, dialect, clock=hire.clock)
    return _hand(hire, post, engine, LocalLauncher(post.name, command))


def _hand(hire: ForeignHire, post: Post, engine: HttpEngine, launcher: Launcher) -> Hand:
    replica = Replica(
        post.name,
        launcher=launcher,
        engine=engine,
        clock=hire.clock,
        policy=hire.policy,
        on_change=hire.on_change,
    )
    engine.explain_absence = replica.absence
    return Hand(post, engine, replica)


def _remote_config(hire: ForeignHire, model: str | None, mode: Mode) -> RemoteConfig:
    text = hire.files.text
    return RemoteConfig(
        served_as=hire.resolved.deployment.served_as,
        model=model,
        mode=mode,
        context_tokens=hire.files.checkpoint.config.max_position_embeddings,
        vocab_size=text.vocab_size,
        end_token_ids=text.end_token_ids,
    )


def _whole(path: str) -> str:
    """Servers run in a folder of their own. Not resolved: a link says which environment it is."""
    return str(expanded(path).absolute())


def _free_port() -> int:
    """One that is free now; a server that finds it taken ends, and is started again."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _api_key(file: str) -> str:
    key = read_secret(file, key=_KEY_FILE, min_bytes=_MIN_KEY_BYTES)
    if not key.isascii() or any(byte <= 0x20 or byte == 0x7F for byte in key):
        raise SettingsError(
            "the file holds characters that no API key has",
            param=_KEY_FILE,
            fix="store the key alone, in one line",
        )
    return key.decode("ascii")


_HIRES: Mapping[str, Callable[[ForeignHire, Post], Hand]] = {
    "remote": _endpoint,
    "vllm": _vllm,
    "sglang": _sglang,
}

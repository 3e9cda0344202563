"""From the deployment file's groups to replicas: posts, processes, and the engine over all of them.

Concrete classes meet here as in `wiring`, which takes this for deployments of more than one
replica.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from steelyard.backends.embedded import EmbeddedEngine
from steelyard.contract import EngineStatus, RealClock
from steelyard.contract.errors import SteelyardError
from steelyard.engine.config import EngineConfig
from steelyard.engine.threads import resolve_threads
from steelyard.fleet.config import RestartPolicy
from steelyard.fleet.crew import Crew, Hand, Post
from steelyard.fleet.process import Launcher, LocalLauncher, engine_command
from steelyard.fleet.replica import Replica, ReplicaStatus
from steelyard.gateway.failover import FailoverConfig, FailoverEngine
from steelyard.gateway.workers.messages import EnginePost
from steelyard.policies.config import (
    HealthConfig,
    HedgingConfig,
    PoliciesConfig,
    RetryConfig,
    RoutingConfig,
    StallConfig,
)
from steelyard.settings import Deployment
from steelyard.settings.fleet import GroupSettings
from steelyard.telemetry import Metrics

__all__ = ["Home", "Replicas", "failover_config", "make_replicas", "posts"]


class Home(Protocol):
    """Where replicas live that outlive this process (`fleet_home.FleetHome`)."""

    @property
    def posts(self) -> list[Post]:
        """Every replica's place."""
        ...

    def launcher(self, post: Post, config: EngineConfig) -> Launcher:
        """How the process of a post is started, or found."""
        ...


@dataclass(frozen=True, slots=True)
class Replicas:
    """Several engines as one, and who keeps them up (`wiring.Keeper`)."""

    engine: FailoverEngine
    crew: Crew
    addresses: Mapping[str, str]
    """Of their sockets, by name."""

    @property
    def engine_posts(self) -> tuple[EnginePost, ...]:
        """Where workers of the door find them, as of now."""
        return tuple(
            EnginePost(
                name=hand.post.name,
                address=self.addresses[hand.post.name],
                group=hand.post.group,
                weight=hand.post.weight,
                is_wanted=self.engine.replicas[hand.post.name].is_wanted,
            )
            for hand in self.crew
        )

    def startup(self) -> None:
        """Want them all up; returns at once."""
        self.engine.startup()
        self.crew.startup()

    async def wait_ready(self) -> None:
        """See `Crew.wait_ready`."""
        await self.crew.wait_ready()

    async def wait_broken(self) -> SteelyardError:
        """See `Crew.wait_broken`."""
        return await self.crew.wait_broken()

    async def statuses(self) -> Mapping[str, EngineStatus]:
        """Of every replica by name."""
        return await self.engine.statuses()

    async def shutdown(self) -> None:
        """Stop them, and return when they are gone."""
        await self.crew.shutdown()
        await self.engine.close()

    async def leave(self) -> None:
        """Disconnect, and let the processes live."""
        await self.crew.leave()
        await self.engine.close()

    def kill(self) -> None:
        """End their processes now."""
        self.crew.kill()


def make_replicas(
    deployment: Deployment,
    config: Callable[[str], EngineConfig],
    metrics: Metrics,
    *,
    folder: Path,
    policy: RestartPolicy,
    on_change: Callable[[ReplicaStatus], None],
    home: Home | None = None,
) -> Replicas:
    """Replicas whose sockets are in `folder`; nothing is started.

    `config` makes an engine's configuration for an address. `home` None: the posts are those of
    the file, and processes end with this one.
    """
    clock = RealClock()
    engine = FailoverEngine(
        failover_config(deployment),
        meter=metrics.failover,
        clock=clock,
        on_status=lambda name, status: metrics.observe_engine(status, name),
    )
    threads = _threads_each(deployment)
    addresses: dict[str, str] = {}

    def hire(post: Post) -> Hand:
        told = config(f"unix:{folder / post.file_name}.sock")
        addresses[post.name] = told.listen
        if not told.threads:
            told = msgspec.structs.replace(told, threads=threads)
        backend = EmbeddedEngine(told.listen, clock=clock)
        replica = Replica(
            post.name,
            launcher=_owned(post, told) if home is None else home.launcher(post, told),
            engine=backend,
            clock=clock,
            policy=policy,
            on_change=on_change,
        )
        backend.explain_absence = replica.absence
        return Hand(post, backend, replica)

    there = posts(deployment.replica_groups) if home is None else home.posts
    return Replicas(engine, Crew(there, roster=engine, hire=hire), addresses)


def posts(groups: Mapping[str, GroupSettings]) -> list[Post]:
    """Every replica's place, in the order of the file."""
    return [
        Post(f"{name}/{number}", name, group.weight, group.standby_of)
        for name, group in groups.items()
        for number in range(group.replicas)
    ]


def failover_config(deployment: Deployment) -> FailoverConfig:
    """What the engine over all replicas is told."""
    failover = deployment.failover
    policies = PoliciesConfig(
        health=HealthConfig(probe_s=failover.probe_s),
        stalls=StallConfig(floor_s=failover.stall_floor_s),
        retries=RetryConfig(patience_s=failover.patience_s),
        hedging=HedgingConfig() if failover.hedge else None,
        routing=RoutingConfig(policy=deployment.routing.policy),
    )
    return FailoverConfig(policies=policies)


def _owned(post: Post, config: EngineConfig) -> Launcher:
    return LocalLauncher(post.name, engine_command(config))


def _threads_each(deployment: Deployment) -> int:
    """Of the machine's cores, so many for each replica that computes: standbys wait."""
    groups = deployment.replica_groups.values()
    computing = sum(group.replicas for group in groups if group.standby_of is None)
    return max(1, resolve_threads(0) // computing)

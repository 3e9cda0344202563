"""The sections of the deployment file that say how many engines there are, and who gets a request.

Values only. `cli.replicas` makes replicas of them, `fleet` keeps these alive, `policies` decides
by them.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from steelyard.settings._section import Section
from steelyard.settings.quantities import Seconds

__all__ = [
    "MAIN_GROUP",
    "FailoverSettings",
    "GroupSettings",
    "ReplicaCount",
    "RoutingSettings",
    "named_groups",
]

MAIN_GROUP = "main"
"""The group of a deployment whose file names none."""

ReplicaCount = Annotated[int, Field(ge=1, le=256)]


class GroupSettings(Section):
    """Replicas that are started, weighed and replaced alike."""

    replicas: ReplicaCount = 1
    """Engine processes."""
    weight: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    """How much each of them is given, relative to those of other groups."""
    standby_of: Annotated[str, Field(min_length=1)] | None = None
    """The group these replicas stand by for: they load the model and take no requests, until one
    of that group fails or `steelyard promote` says so. `null`: they serve."""


class RoutingSettings(Section):
    """Which replica a request is given to."""

    policy: Literal["least_ttft", "least_loaded", "round_robin"] = "least_ttft"
    """`least_ttft`: the earliest predicted first token, from cached prefix, queue and speed;
    `least_loaded`: the fewest requests; `round_robin`: in turn."""


class FailoverSettings(Section):
    """When a replica is given up, and its streams go on elsewhere."""

    probe_s: Seconds = 5.0
    """Between two looks at a replica without doubts."""
    stall_floor_s: Seconds = 1.0
    """The shortest silence of all streams of a replica that counts as a stall; a slow replica is
    given five times its own longest usual silence."""
    patience_s: Seconds = 30.0
    """How long a stream that has begun waits for any replica to come back."""
    hedge: bool = False
    """Ask a second replica when a first token is late; the first answer wins."""
    drain_s: Seconds = 5.0
    """Streams of a replica that is drained may finish within this time; the rest goes on
    elsewhere."""


def named_groups(groups: Mapping[str, GroupSettings], replicas: int) -> dict[str, GroupSettings]:
    """The groups of the file; a file without any has one, of `replicas`."""
    return dict(groups) or {MAIN_GROUP: GroupSettings(replicas=replicas)}

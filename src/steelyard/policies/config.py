"""Settings of the policies, resolved: every value is final here. `cli.wiring` fills them in.

The defaults are those of a replica that computes a token in tens of milliseconds. What depends on
the model's speed is learned while serving and only bounded here.
"""

from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "HealthConfig",
    "HedgingConfig",
    "PoliciesConfig",
    "QuarantineConfig",
    "RetryConfig",
    "RoutingConfig",
    "SheddingConfig",
    "StallConfig",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfig:
    """When a replica is taken out of rotation, and how it comes back."""

    probe_s: float = 5.0
    """Between probes of a replica without doubts; the backstop for replicas without requests."""
    doubt_probe_s: float = 0.5
    """Between probes of one in doubt, ejected or absent: it should be back soon after it can."""
    probe_timeout_s: float = 1.0
    """For the answer to a probe of an idle replica. Engines answer between steps, so
    `probe_timeout_steps` of the replica's own steps are added."""
    probe_timeout_steps: float = 5.0
    probe_timeout_cap_s: float = 15.0
    probe_misses: int = 3
    """Unanswered probes in a row, with no token in between, that eject a replica. One is enough
    when a stall of its streams says the same."""
    stuck_s: float = 10.0
    """A replica that answers probes and has work, but whose counters stand still for so long, is
    ejected: its front is alive and its engine is not."""
    errors_in_a_row: int = 5
    """Failed requests without a good one in between that eject a replica."""
    ejection_s: float = 1.0
    """The first ejection's length; every further one is `ejection_factor` times as long. Short,
    because most deaths are alone and a fresh process is as good as any."""
    ejection_factor: float = 2.0
    ejection_cap_s: float = 120.0
    forgive_s: float = 60.0
    """In rotation for so long, a replica has one ejection of its past forgotten."""
    return_s: float = 10.0
    """Over this time the share of a returning replica grows from `return_share` to its full one:
    its caches are cold, and it may fail again."""
    return_share: float = 0.1
    max_ejected_share: float = 0.5
    """When more than this share of the replicas that are there is ejected, the judgement is taken
    for wrong, and all are tried (panic)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallConfig:
    """How long a stream may be silent before it is continued elsewhere."""

    floor_s: float = 1.0
    """The shortest silence that counts as a stall."""
    factor: float = 5.0
    """Otherwise a stall is so many times the 99th percentile of the replica's silences."""
    cap_s: float = 30.0
    lone_factor: float = 10.0
    """One silent stream of a replica whose other streams advance is left alone for so many times
    the stall's length: it was preempted, or waits for memory."""
    doubt_s: float = 2.0
    """A first token that is this late, and `doubt_factor` times later than predicted, asks for a
    probe. It moves nothing by itself: a saturated replica is not a dead one."""
    doubt_factor: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """What a request may be given after a failure."""

    max_attempts: int = 3
    """Attempts without a token in between. One that brought tokens was no failure of the request,
    so a stream outlives one replica after the other, until quarantine takes it for the cause."""
    max_attempts_in_all: int = 16
    """Bound for requests that make every replica fail after a few tokens."""
    max_refusals: int = 3
    """Replicas that may refuse a request as too many, before it is refused, or waits."""
    budget_share: float = 0.2
    """Retries allowed per first attempt, over all requests: a failing service is not asked twice
    as much. It binds requests that a live replica failed before their first token. Streams that
    have begun, and requests whose replica is gone, go on without it."""
    budget_reserve: float = 20.0
    """Retries that can be saved up, and are there at the start."""
    budget_per_s: float = 1.0
    """Retries earned by time alone, so that a quiet service may retry too."""
    patience_s: float = 30.0
    """How long an accepted request waits for any replica to come back. New ones are told at
    once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgingConfig:
    """Asking a second replica when the first token is late; the first answer wins."""

    quantile: float = 0.95
    """Of recent times to first token: only later ones are hedged."""
    min_s: float = 0.05
    """Never sooner than this."""
    budget_share: float = 0.05
    """Hedges per request at most, over all requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineConfig:
    """Requests that kill replicas."""

    deaths: int = 2
    """A request that was in flight when so many replicas died, one after the other, is refused
    from then on if the deaths single it out, and kept apart until they do if they do not."""
    keep_s: float = 600.0
    """How long a verdict, or a suspicion, is kept."""
    max_entries: int = 4096
    """Suspicions and verdicts kept; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConfig:
    """Which replica a request is given to."""

    policy: Literal["least_ttft", "least_loaded", "round_robin"] = "least_ttft"
    """`least_ttft`: the earliest predicted first token, from cached prefix, queue, memory and
    learned speed. `least_loaded`: fewest requests for its weight. `round_robin`: in turn."""
    block_tokens: int = 64
    """Prefixes are compared in blocks of so many tokens."""
    max_blocks: int = 500_000
    """Bound of the prefix map over all replicas: about 120 bytes each."""
    imbalance: float = 1.25
    """No replica is given more than so many times its share of recent work, however well it knows
    a prompt."""
    imbalance_window_s: float = 60.0
    """Time constant of what counts as recent."""
    tolerance: float = 0.05
    """Predictions this close count as equal; then the replica with the least recent work is taken,
    which spreads prompts that nobody knows."""
    tolerance_s: float = 0.002
    scan_limit: int = 32
    """Up to so many replicas are all looked at. Of more, those with the longest known prefixes and
    a few drawn by chance, so that the cost of a choice does not grow with the fleet."""
    draws: int = 8
    affinity_factor: float = 2.0
    """A session stays where it was unless the first token would come this many times later, plus
    `affinity_s`, than from the best replica."""
    affinity_s: float = 0.1
    max_sessions: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SheddingConfig:
    """Refusing what would wait too long, the least important first."""

    max_wait_s: float = 30.0
    """A request of class 0 whose predicted wait, its own prompt apart, is longer is refused."""
    class_factor: float = 0.5
    """Each step of `priority` upwards (less important) multiplies the limit by this, each step
    downwards divides by it: under rising load the least important class is refused first."""
    max_steps: int = 4
    """Classes further from 0 than this are treated alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesConfig:
    """All of them."""

    health: HealthConfig = field(default_factory=HealthConfig)
    stalls: StallConfig = field(default_factory=StallConfig)
    retries: RetryConfig = field(default_factory=RetryConfig)
    hedging: HedgingConfig | None = None
    """None: no hedging."""
    quarantine: QuarantineConfig = field(default_factory=QuarantineConfig)
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    shedding: SheddingConfig = field(default_factory=SheddingConfig)

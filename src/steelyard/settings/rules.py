"""What settings must not be together: contradictions and impossible sums.

Each rule sees a deployment whose single values are valid and names the keys it compared, so that
`resolve` can leave it out when one of them is already known to be wrong.
"""

from collections.abc import Callable, Iterator

from steelyard.settings.contradiction import Contradiction
from steelyard.settings.deployment import Deployment
from steelyard.settings.foreign_rules import FOREIGN_RULES
from steelyard.settings.hosts import is_loopback

__all__ = ["RULES", "contradictions"]


def contradictions(deployment: Deployment) -> list[Contradiction]:
    """Everything that cannot work, in the order of `RULES`."""
    return [found for rule in RULES for found in rule(deployment)]


def _held_batch_fits(deployment: Deployment) -> Iterator[Contradiction]:
    batching = deployment.batching
    if batching.min_batch > batching.running_limit:
        auto = "auto, which is " if batching.max_running == "auto" else ""
        yield Contradiction(
            ("batching.min_batch", "batching.max_running", "batching.max_step_tokens"),
            f"{batching.min_batch} exceeds batching.max_running = {auto}{batching.running_limit}",
            f"lower batching.min_batch to {batching.running_limit} or raise batching.max_running",
        )
    if batching.min_batch > batching.max_waiting:
        yield Contradiction(
            ("batching.min_batch", "batching.max_waiting"),
            f"{batching.min_batch} exceeds batching.max_waiting = {batching.max_waiting}, "
            "so that many can never wait",
            f"lower batching.min_batch to {batching.max_waiting} or raise batching.max_waiting",
        )


def _holding_ends(deployment: Deployment) -> Iterator[Contradiction]:
    batching = deployment.batching
    if batching.min_batch > 1 and batching.max_wait_ms == 0:
        yield Contradiction(
            ("batching.min_batch", "batching.max_wait_ms"),
            f"{batching.min_batch} has no effect while batching.max_wait_ms = 0 disables holding",
            "set batching.max_wait_ms, for example to 50, or batching.min_batch to 1",
        )


def _every_stream_gets_a_token(deployment: Deployment) -> Iterator[Contradiction]:
    batching = deployment.batching
    if batching.running_limit > batching.max_step_tokens:
        yield Contradiction(
            ("batching.max_running", "batching.max_step_tokens"),
            f"{batching.max_running} exceeds batching.max_step_tokens = "
            f"{batching.max_step_tokens}, so a step cannot give every running sequence a token",
            f"lower batching.max_running to {batching.max_step_tokens} "
            "or raise batching.max_step_tokens",
        )


def _a_block_fits_the_context(deployment: Deployment) -> Iterator[Contradiction]:
    block_tokens = deployment.kv_cache.block_tokens
    context_tokens = deployment.engine.context_tokens
    if context_tokens != "auto" and block_tokens > context_tokens:
        yield Contradiction(
            ("kv_cache.block_tokens", "engine.context_tokens"),
            f"{block_tokens} exceeds engine.context_tokens = {context_tokens}",
            "use kv_cache.block_tokens: 16 or raise engine.context_tokens",
        )


def _default_is_allowed(deployment: Deployment) -> Iterator[Contradiction]:
    limits = deployment.gateway.limits
    default, highest = limits.default_max_tokens, limits.max_tokens
    if default is not None and highest is not None and default > highest:
        yield Contradiction(
            ("gateway.limits.default_max_tokens", "gateway.limits.max_tokens"),
            f"{default} exceeds gateway.limits.max_tokens = {highest}",
            f"lower gateway.limits.default_max_tokens to {highest} "
            "or raise gateway.limits.max_tokens",
        )


def _choices_fit_the_queues(deployment: Deployment) -> Iterator[Contradiction]:
    limits, batching = deployment.gateway.limits, deployment.batching
    for path, bound, why in (
        ("gateway.limits.max_sequences", limits.max_sequences, "be accepted"),
        ("gateway.limits.max_queue", limits.max_queue, "wait its turn"),
        ("batching.max_waiting", batching.max_waiting, "wait its turn"),
    ):
        if limits.max_n > bound:
            yield Contradiction(
                ("gateway.limits.max_n", path),
                f"{limits.max_n} exceeds {path} = {bound}, "
                f"so a request with that many choices could never {why}",
                f"lower gateway.limits.max_n to {bound} or raise {path}",
            )


def _open_door_is_meant(deployment: Deployment) -> Iterator[Contradiction]:
    gateway = deployment.gateway
    if not gateway.is_loopback and gateway.auth.mode == "none" and not gateway.insecure:
        yield Contradiction(
            ("gateway.host", "gateway.auth.mode", "gateway.insecure"),
            f"{gateway.host} can be reached from other machines while gateway.auth.mode = none, "
            "so everyone who reaches the port may use the model",
            "set gateway.auth.mode, or gateway.insecure: true if something in front decides who "
            "gets there (a container's port mapping, a proxy that authenticates), or listen on "
            "127.0.0.1",
        )


def _administration_is_not_open(deployment: Deployment) -> Iterator[Contradiction]:
    gateway = deployment.gateway
    is_open = gateway.auth.mode == "none" and not gateway.insecure
    if gateway.admin.port is not None and not is_loopback(gateway.admin.host) and is_open:
        yield Contradiction(
            ("gateway.admin.host", "gateway.auth.mode", "gateway.insecure"),
            f"{gateway.admin.host} can be reached from other machines while gateway.auth.mode = "
            "none, so everyone who reaches the port may administrate",
            "set gateway.auth.mode, or listen on 127.0.0.1, or set gateway.insecure: true if "
            "something in front decides who gets there",
        )


def _credentials_can_be_checked(deployment: Deployment) -> Iterator[Contradiction]:
    auth, jwt = deployment.gateway.auth, deployment.gateway.auth.jwt
    needed = {
        "api_keys": (
            ("keys_file", auth.keys_file, "name the file that `steelyard keys new` writes"),
        ),
        "jwt": (
            ("jwt.issuer", jwt.issuer, "name the provider as its tokens do in iss"),
            ("jwt.audience", jwt.audience, "name this service as the tokens do in aud"),
            ("jwt.jwks_url", jwt.jwks_url, "name the provider's jwks_uri"),
        ),
    }
    for name, value, fix in needed.get(auth.mode, ()):
        if not value:
            path = f"gateway.auth.{name}"
            yield Contradiction(
                (path, "gateway.auth.mode"),
                f"is not set, but gateway.auth.mode = {auth.mode} needs it",
                fix,
            )


def _credentials_are_asked_for(deployment: Deployment) -> Iterator[Contradiction]:
    auth = deployment.gateway.auth
    for path, value, mode in (
        ("gateway.auth.keys_file", auth.keys_file, "api_keys"),
        ("gateway.auth.jwt.issuer", auth.jwt.issuer, "jwt"),
        ("gateway.auth.revoked_file", auth.revoked_file, "jwt"),
    ):
        if value is not None and auth.mode == "none":
            yield Contradiction(
                (path, "gateway.auth.mode"),
                "is set, but gateway.auth.mode = none asks nobody for credentials",
                f"set gateway.auth.mode: {mode}, or remove it",
            )


def _metrics_have_a_place(deployment: Deployment) -> Iterator[Contradiction]:
    gateway = deployment.gateway
    if gateway.metrics == "admin" and gateway.admin.port is None and gateway.admin.socket is None:
        yield Contradiction(
            ("gateway.metrics", "gateway.admin.port", "gateway.admin.socket"),
            "admin needs a listener for administration, and there is none",
            "set gateway.admin.port, such as 8001, or gateway.admin.socket",
        )
    if gateway.admin.port is not None and gateway.admin.socket is not None:
        yield Contradiction(
            ("gateway.admin.port", "gateway.admin.socket"),
            "is set together with gateway.admin.socket",
            "keep one of them",
        )


def _batches_have_one_keeper(deployment: Deployment) -> Iterator[Contradiction]:
    gateway = deployment.gateway
    if gateway.batches.folder is not None and gateway.workers > 1:
        yield Contradiction(
            ("gateway.batches.folder", "gateway.workers"),
            f"is set, but gateway.workers = {gateway.workers} processes cannot share it",
            "set gateway.workers: 1, or remove it",
        )


def _restarts_slow_down(deployment: Deployment) -> Iterator[Contradiction]:
    restart = deployment.engine.restart
    if restart.first_delay_s > restart.max_delay_s:
        yield Contradiction(
            ("engine.restart.first_delay_s", "engine.restart.max_delay_s"),
            f"{restart.first_delay_s:g} exceeds engine.restart.max_delay_s = "
            f"{restart.max_delay_s:g}",
            "lower engine.restart.first_delay_s or raise engine.restart.max_delay_s",
        )


def _replicas_are_said_once(deployment: Deployment) -> Iterator[Contradiction]:
    if deployment.groups and deployment.replicas != 1:
        yield Contradiction(
            ("replicas", "groups"),
            "is set together with groups, which say how many replicas there are",
            "remove it, and set replicas of each group",
        )


def _standbys_have_somebody(deployment: Deployment) -> Iterator[Contradiction]:
    groups = deployment.groups
    for name, group in groups.items():
        path = f"groups.{name}.standby_of"
        if group.standby_of is None:
            continue
        primary = groups.get(group.standby_of)
        if primary is None or primary.standby_of is not None:
            yield Contradiction(
                (path,),
                f"{group.standby_of} is no group that serves",
                "name a group of this file that has no standby_of itself",
            )


def _made_up_tokens_need_no_replicas(deployment: Deployment) -> Iterator[Contradiction]:
    if deployment.backend == "fake" and deployment.replica_count > 1:
        yield Contradiction(
            ("replicas", "backend"),
            "more than one replica is set, but backend = fake has no engine processes",
            "set backend: embedded, or replicas: 1",
        )


RULES: tuple[Callable[[Deployment], Iterator[Contradiction]], ...] = (
    _held_batch_fits,
    _holding_ends,
    _every_stream_gets_a_token,
    _a_block_fits_the_context,
    _default_is_allowed,
    _choices_fit_the_queues,
    _open_door_is_meant,
    _administration_is_not_open,
    _credentials_can_be_checked,
    _credentials_are_asked_for,
    _metrics_have_a_place,
    _batches_have_one_keeper,
    _restarts_slow_down,
    _replicas_are_said_once,
    _standbys_have_somebody,
    _made_up_tokens_need_no_replicas,
    *FOREIGN_RULES,
)
"""Every rule; a new one is added here."""

"""What settings must not be together when the engine is not ours. `rules` asks these, too."""

from collections.abc import Callable, Iterator

from steelyard.settings.contradiction import Contradiction
from steelyard.settings.deployment import Deployment
from steelyard.settings.foreign import ServerSettings

__all__ = ["FOREIGN_RULES"]

_SERVERS = ("vllm", "sglang")
_IN_PROCESS = ("remote", *_SERVERS)
"""Engines whose connections live in the process of the door."""
_GIB = 1 << 30


def _endpoints_are_named(deployment: Deployment) -> Iterator[Contradiction]:
    remote = deployment.remote
    if deployment.backend == "remote" and remote.url is None:
        yield Contradiction(
            ("remote.url", "backend"),
            "is not set, but backend = remote needs it",
            "name the endpoint, such as http://host:8000/v1",
        )
    if deployment.backend != "remote" and remote.urls:
        path = "remote.url" if remote.url is not None else "remote.more_urls"
        yield Contradiction(
            (path, "backend"),
            f"is set, but backend = {deployment.backend} asks no endpoint",
            "set backend: remote, or remove it",
        )
    repeated = {url for url in remote.urls if remote.urls.count(url) > 1}
    if repeated:
        yield Contradiction(
            ("remote.more_urls", "remote.url"),
            f"{min(repeated)} is named twice",
            "name each endpoint once",
        )


def _endpoints_are_the_replicas(deployment: Deployment) -> Iterator[Contradiction]:
    if deployment.backend != "remote":
        return
    for path, is_set in (
        ("replicas", deployment.replicas != 1),
        ("groups", bool(deployment.groups)),
    ):
        if is_set:
            yield Contradiction(
                (path, "backend"),
                "is set, but with backend = remote each endpoint is a replica",
                "remove it, and name the endpoints in remote.url and remote.more_urls",
            )


def _one_process_holds_the_connections(deployment: Deployment) -> Iterator[Contradiction]:
    if deployment.backend in _IN_PROCESS and deployment.gateway.workers > 1:
        yield Contradiction(
            ("gateway.workers", "backend"),
            f"{deployment.gateway.workers} processes are to serve the port, but those of "
            f"backend = {deployment.backend} cannot be shared among processes",
            "set gateway.workers: 1",
        )


def _servers_are_named(deployment: Deployment) -> Iterator[Contradiction]:
    for name, server in _servers(deployment):
        is_used = deployment.backend == name
        if is_used and server.python is None:
            yield Contradiction(
                (f"{name}.python", "backend"),
                f"is not set, but backend = {name} needs it",
                "name the Python of the environment that it is installed in",
            )
        if not is_used and server.python is not None:
            yield Contradiction(
                (f"{name}.python", "backend"),
                f"is set, but backend = {deployment.backend} starts no such server",
                f"set backend: {name}, or remove it",
            )


def _division_has_somebody(deployment: Deployment) -> Iterator[Contradiction]:
    parallel = deployment.parallel
    if deployment.backend in _SERVERS:
        if parallel.expert and parallel.tensor * parallel.data == 1:
            yield Contradiction(
                ("parallel.expert", "parallel.tensor", "parallel.data"),
                "true has no effect on a single device",
                "set parallel.tensor or parallel.data, or parallel.expert: false",
            )
        return
    for key, value in parallel:
        if value != type(parallel).model_fields[key].default:
            yield Contradiction(
                (f"parallel.{key}", "backend"),
                f"{value} is set, but backend = {deployment.backend} divides no model",
                "set backend: vllm or sglang, or remove it",
            )


def _precisions_are_the_servers(deployment: Deployment) -> Iterator[Contradiction]:
    if deployment.backend not in _SERVERS:
        return
    backend, precision = deployment.backend, deployment.weights.precision
    if precision in ("int8", "int4"):
        yield Contradiction(
            ("weights.precision", "backend"),
            f"{precision} is made while loading by backend = embedded alone",
            "use weights.precision: auto, and a model whose files are stored in it",
        )
    if deployment.kv_cache.dtype != "auto":
        yield Contradiction(
            ("kv_cache.dtype", "backend"),
            f"{deployment.kv_cache.dtype} is for backend = embedded",
            f"set {backend}.kv_dtype instead",
        )
    memory = deployment.kv_cache.memory
    if backend == "sglang" and memory != "auto":
        yield Contradiction(
            ("kv_cache.memory", "backend"),
            "is set, but backend = sglang takes no size of its KV cache",
            "set sglang.memory_share instead",
        )
    elif memory != "auto" and memory < _GIB:
        yield Contradiction(
            ("kv_cache.memory", "backend"),
            f"is less than 1GiB, the unit in which backend = {backend} counts",
            "use kv_cache.memory: 1GiB or more",
        )


def _servers(deployment: Deployment) -> tuple[tuple[str, ServerSettings], ...]:
    return (("vllm", deployment.vllm), ("sglang", deployment.sglang))


FOREIGN_RULES: tuple[Callable[[Deployment], Iterator[Contradiction]], ...] = (
    _endpoints_are_named,
    _endpoints_are_the_replicas,
    _servers_are_named,
    _division_has_somebody,
    _precisions_are_the_servers,
    _one_process_holds_the_connections,
)

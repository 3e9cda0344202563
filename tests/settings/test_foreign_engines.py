"""Engines that are not ours: which settings contradict each other, and what is no endpoint."""

import pytest

from steelyard.settings import resolve
from steelyard.settings.foreign import without_api_path

from .conftest import Examiner

REMOTE = "backend: remote\nremote: {url: 'http://host:8000/v1'}\n"
VLLM = "backend: vllm\nvllm: {python: /opt/vllm/bin/python}\n"
SGLANG = "backend: sglang\nsglang: {python: /opt/sglang/bin/python}\n"


@pytest.mark.parametrize("file", [REMOTE, VLLM, SGLANG])
def test_the_shortest_files_are_accepted(examined: Examiner, file: str) -> None:
    assert examined(file).resolved is not None


@pytest.mark.parametrize(
    ("file", "path", "says"),
    [
        ("backend: remote", "remote.url", "backend = remote needs it"),
        ("remote: {url: 'http://host'}", "remote.url", "asks no endpoint"),
        ("remote: {more_urls: ['http://host']}", "remote.more_urls", "asks no endpoint"),
        (REMOTE + "replicas: 2", "replicas", "each endpoint is a replica"),
        (REMOTE + "groups: {a: {replicas: 1}}", "groups", "each endpoint is a replica"),
        (
            "backend: remote\nremote: {url: 'http://a', more_urls: ['http://a']}",
            "remote.more_urls",
            "named twice",
        ),
        (REMOTE + "gateway: {workers: 2}", "gateway.workers", "cannot be shared"),
        ("backend: vllm", "vllm.python", "backend = vllm needs it"),
        ("backend: sglang", "sglang.python", "backend = sglang needs it"),
        ("vllm: {python: /x}", "vllm.python", "starts no such server"),
        ("parallel: {tensor: 2}", "parallel.tensor", "divides no model"),
        ("parallel: {expert: true}", "parallel.expert", "divides no model"),
        (VLLM + "parallel: {expert: true}", "parallel.expert", "single device"),
        (VLLM + "weights: {precision: int4}", "weights.precision", "embedded alone"),
        (VLLM + "kv_cache: {dtype: bf16}", "kv_cache.dtype", "for backend = embedded"),
        (VLLM + "kv_cache: {memory: 512MiB}", "kv_cache.memory", "less than 1GiB"),
        (SGLANG + "kv_cache: {memory: 2GiB}", "kv_cache.memory", "takes no size"),
    ],
)
def test_contradictions_name_key_reason_and_fix(
    examined: Examiner, file: str, path: str, says: str
) -> None:
    problem = examined.problem(file)
    assert problem.path == path
    assert says in problem.reason
    assert problem.fix


@pytest.mark.parametrize(
    "url",
    [
        "host:8000",
        "file:///etc/passwd",
        "ftp://host/v1",
        "gopher://host",
        "unix:///run/socket",
        "http://",
        "http://host:99999",
        "http://host/v1?key=1",
        "http://ho st/v1",
        "http://[::1",
    ],
)
def test_what_is_no_http_address_is_no_endpoint(examined: Examiner, url: str) -> None:
    problem = examined.problem(sets=["backend=remote", f"remote.url={url}"])
    assert problem.path == "remote.url"


def test_credentials_belong_into_the_file_for_them(examined: Examiner) -> None:
    problem = examined.problem(sets=["backend=remote", "remote.url=https://user:pass@host/v1"])
    assert "remote.api_key_file" in problem.fix
    assert "pass@" not in str(problem)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://host:8000", "http://host:8000"),
        ("http://host:8000/", "http://host:8000"),
        ("http://host/v1", "http://host"),
        ("https://host/some/path/v1/", "https://host/some/path"),
    ],
)
def test_the_path_of_the_api_may_be_said_or_left_out(url: str, base: str) -> None:
    assert without_api_path(url) == base


def test_every_endpoint_is_a_replica() -> None:
    sets = ["backend=remote", "remote.url=http://a/v1", "remote.more_urls=http://b, http://c"]
    deployment = resolve(sets=sets, environ={}).deployment
    assert deployment.replica_count == 3
    assert deployment.remote.urls == ("http://a/v1", "http://b", "http://c")

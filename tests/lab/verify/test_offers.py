"""What a server offers is found out by asking it."""

import pytest

from steelyard.contract.errors import EngineLost, InvalidRequest
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.metrics import read_metrics
from steelyard.lab.verify.offer import discover
from steelyard.lab.verify.target import read_target
from tests.gateway.doors import Door


async def test_our_door_offers_what_its_documentation_says(door: Door) -> None:
    offer = await discover(read_target(door.url))
    assert offer.models == ("fake",) and offer.model == "fake"
    assert offer.context_tokens == 4096
    assert offer.endpoints == (Endpoint.CHAT, Endpoint.TEXT)
    assert offer.logprobs == set(Endpoint)
    assert offer.refuses_unknown
    assert offer.running_gauge == "steelyard_engine_running"
    assert offer.unchecked_paths == ()
    assert "/tokenize" in offer.paths and "/v1/moderations" not in offer.paths


async def test_nobody_there_is_an_error_of_its_own() -> None:
    with pytest.raises(EngineLost, match="cannot connect"):
        await discover(read_target("http://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("url", "host", "port", "base", "authority"),
    [
        ("http://h:81", "h", 81, "", "h:81"),
        ("h:81", "h", 81, "", "h:81"),
        ("http://h/v1/", "h", 80, "", "h"),
        ("https://h/openai/v1", "h", 443, "/openai", "h"),
        ("http://[::1]:8000", "::1", 8000, "", "[::1]:8000"),
    ],
)
def test_urls_are_read_with_or_without_scheme_and_version(
    url: str, host: str, port: int, base: str, authority: str
) -> None:
    target = read_target(url)
    assert (target.host, target.port, target.base_path) == (host, port, base)
    assert target.authority == authority


@pytest.mark.parametrize(
    "url", ["", "ftp://h", "http://", "http://u:p@h", "http://h:port", "http://h?x=1"]
)
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        read_target(url)


def test_keys_are_not_shown() -> None:
    assert "secret" not in repr(read_target("http://h", api_key="secret"))


def test_metrics_are_summed_over_labels_and_bad_lines_are_named() -> None:
    text = (
        "# HELP a b\n# TYPE a counter\n"
        'a{x="1",y="q\\"uote"} 2\na{x="2"} 3.5e0 1700000000\nb +Inf\nnot a sample\na{x="2"} 1\n'
    )
    metrics = read_metrics(text)
    assert metrics.values["a"] == 6.5 and metrics.values["b"] == float("inf")
    assert len(metrics.faults) == 2

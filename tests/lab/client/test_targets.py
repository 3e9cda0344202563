"""Addresses of servers: what is none is refused in words, before anything is sent."""

import pytest

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.client.target import Target, resolve
from steelyard.lab.verify.target import read_target

_NO_SERVERS = [
    "",
    "ftp://host",
    "file:///etc/passwd",
    "http://",
    "http://:8000",
    "http://[::1",
    "http://host:99999",
    "http://host:x",
    "http://user:password@host",
    "http://host/?key=value",
    "http://host/#part",
    "http://host/a b",
    "http://host/\N{LATIN SMALL LETTER E WITH ACUTE}",
]


@pytest.mark.parametrize("url", _NO_SERVERS)
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        Target(url=url, model="m").address  # noqa: B018 - raises
    with pytest.raises(InvalidRequest):
        read_target(url)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Target(url="http://user:hunter2@host", model="m").address  # noqa: B018 - raises
    assert "hunter2" not in str(caught.value)


def test_port_0_is_not_taken_for_the_usual_one() -> None:
    assert Target(url="http://host:0", model="m").address.port == 0
    assert read_target("http://host:0").port == 0


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "."])
def test_names_that_no_host_can_have_are_told(host: str) -> None:
    with pytest.raises(InvalidRequest, match="no name of a host"):
        resolve(Target(url=f"http://{host}", model="m").address)

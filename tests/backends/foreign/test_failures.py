"""Foreign failures: every one that can come out of aiohttp has its place in the tree."""

import ssl
from collections.abc import Iterator
from types import SimpleNamespace

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.backends.http.events import EventCutter
from steelyard.backends.http.failures import error_of_status, retry_after_s, translated
from steelyard.contract.errors import (
    Never,
    Retry,
    RetryElsewhere,
    RetryLater,
    SettingsError,
    SteelyardError,
)


def _subclasses(cls: type) -> Iterator[type]:
    yield cls
    for sub in cls.__subclasses__():
        yield from _subclasses(sub)


def _make(cls: type) -> BaseException:
    """An exception of a class that wants who knows what: only its type matters."""
    error = cls.__new__(cls)
    key = SimpleNamespace(host="host", port=1, is_ssl=True, ssl=True)
    for name, value in (
        ("_conn_key", key),
        ("_os_error", OSError(111, "refused")),
        ("_certificate_error", ssl.SSLError("self-signed")),
        ("_host", "host"),
        ("_port", 1),
        ("_path", "/socket"),
        ("_url", "http://host"),
        ("_description", ""),
        ("args", (key, OSError(111, "refused"))),
        ("message", "message"),
        ("status", 500),
        ("request_info", SimpleNamespace(real_url="http://host")),
    ):
        try:
            setattr(error, name, value)
        except (AttributeError, TypeError):
            continue
    return error


@pytest.mark.parametrize("cls", sorted(set(_subclasses(aiohttp.ClientError)), key=str), ids=str)
def test_every_exception_of_aiohttp_has_its_place_in_the_tree(cls: type) -> None:
    with pytest.raises(RetryElsewhere), translated("http://host"):
        raise _make(cls)


@pytest.mark.parametrize(
    "error", [TimeoutError(), ConnectionResetError(), BrokenPipeError(), ValueError("header")]
)
def test_those_of_the_system_do_too(error: Exception) -> None:
    with pytest.raises(RetryElsewhere), translated("http://host"):
        raise error


def test_an_untrusted_certificate_says_which_setting_helps() -> None:
    with pytest.raises(SteelyardError) as refusal, translated("https://host"):
        raise _make(aiohttp.ClientConnectorCertificateError)
    assert "remote.ca_file" in refusal.value.fix


@given(
    status=st.integers(100, 599).filter(lambda status: status != 200),
    body=st.binary(max_size=200),
)
def test_every_status_has_a_meaning_whatever_its_body(status: int, body: bytes) -> None:
    error = error_of_status(status, body, None)
    assert not isinstance(error, SettingsError)
    if status == 429:
        assert isinstance(error, RetryLater)
    elif status >= 500:
        assert error.retry is not Retry.NEVER
    elif status in (400, 413, 422):
        assert isinstance(error, Never)


@pytest.mark.parametrize(
    ("header", "delay_s"),
    [
        (None, None),
        ("5", 5.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("1e9", 3600.0),
        ("nan", None),
        ("soon", None),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header, delay_s) -> None:
    assert retry_after_s(header, now_unix_s=10.0) == delay_s


@given(
    payloads=st.lists(
        st.text(st.characters(blacklist_characters="\r\n", codec="utf-8"), min_size=1)
    ),
    newline=st.sampled_from(["\n", "\r\n"]),
    cuts=st.lists(st.integers(1, 20), min_size=1),
)
def test_events_are_the_same_however_the_stream_is_cut(payloads, newline, cuts) -> None:
    data = "".join(
        f": comment{newline}event: x{newline}data: {payload}{newline}{newline}"
        for payload in payloads
    ).encode()
    cutter = EventCutter(1 << 20)
    seen, at, number = [], 0, 0
    while at < len(data):
        size = cuts[number % len(cuts)]
        seen += cutter.feed(data[at : at + size])
        at, number = at + size, number + 1
    assert [payload.decode() for payload in seen] == [p.removeprefix("") for p in payloads]

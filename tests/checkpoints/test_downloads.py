"""Downloads go on where they stopped, and end with the whole file or a clear failure."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.checkpoints._download import DownloadFailed, download
from steelyard.checkpoints.progress import PullProgress
from tests.checkpoints.faulty_server import FaultyServer, faulty_server

BODY = bytes(itertools.islice(itertools.cycle(range(251)), 1_000_000))


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server() as state:
        state.files["/file"] = BODY
        yield state


class Pauses:
    """A sleep that only counts."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, duration_s: float) -> None:
        self.seconds.append(duration_s)


def _download(url: str, target: Path, total: int = len(BODY)) -> tuple[Pauses, list[PullProgress]]:
    pauses, seen = Pauses(), list[PullProgress]()
    download(url, target, total_bytes=total, report=seen.append, sleep=pauses)
    return pauses, seen


def test_a_file_is_fetched_and_progress_is_told(tmp_path: Path, server: FaultyServer) -> None:
    _, seen = _download(f"{server.url}/file", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    done = [progress.done_bytes for progress in seen]
    assert done == sorted(done)
    assert done[-1] == len(BODY)
    assert {progress.total_bytes for progress in seen} == {len(BODY)}


def test_a_file_on_disk_is_fetched_and_resumed_too(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(BODY)
    (tmp_path / "f").write_bytes(BODY[:1234])
    _download(source.as_uri(), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY


def test_connections_that_break_are_resumed_where_they_broke(
    tmp_path: Path, server: FaultyServer
) -> None:
    server.cut_after = [100_000, 300_000, 1]
    _download(f"{server.url}/file", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    assert [wanted for _, wanted in server.requests] == [
        None,
        "bytes=100000-",
        "bytes=400000-",
        "bytes=400001-",
    ]


def test_what_an_earlier_process_left_is_not_fetched_again(
    tmp_path: Path, server: FaultyServer
) -> None:
    (tmp_path / "f").write_bytes(BODY[:900_000])
    _download(f"{server.url}/file", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    assert server.requests == [("/file", "bytes=900000-")]


def test_a_complete_file_needs_no_request(tmp_path: Path, server: FaultyServer) -> None:
    (tmp_path / "f").write_bytes(BODY)
    _download(f"{server.url}/file", tmp_path / "f")
    assert server.requests == []


def test_a_server_that_ignores_ranges_gives_the_file_from_the_start(
    tmp_path: Path, server: FaultyServer
) -> None:
    server.honours_range = False
    (tmp_path / "f").write_bytes(b"x" * 1000)
    _download(f"{server.url}/file", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY


def test_passing_failures_are_tried_again_with_growing_pauses(
    tmp_path: Path, server: FaultyServer
) -> None:
    server.statuses = [503, 429, 500]
    pauses, _ = _download(f"{server.url}/file", tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    assert pauses.seconds == sorted(pauses.seconds)
    assert len(pauses.seconds) == 3


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_final_answers_end_the_download_at_once(
    tmp_path: Path, server: FaultyServer, status: int
) -> None:
    server.statuses = [status] * 10
    with pytest.raises(DownloadFailed, match=str(status)):
        _download(f"{server.url}/file", tmp_path / "f")
    assert len(server.requests) == 1


def test_a_server_that_never_gives_anything_is_given_up(
    tmp_path: Path, server: FaultyServer
) -> None:
    server.cut_after = [0] * 50
    with pytest.raises(DownloadFailed, match="ended early"):
        _download(f"{server.url}/file", tmp_path / "f")
    assert len(server.requests) == 5


def test_a_file_shorter_than_promised_is_given_up_but_kept(
    tmp_path: Path, server: FaultyServer
) -> None:
    with pytest.raises(DownloadFailed):
        _download(f"{server.url}/file", tmp_path / "f", total=len(BODY) + 1)
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_server_that_sends_too_much_is_cut_off(tmp_path: Path, server: FaultyServer) -> None:
    _download(f"{server.url}/file", tmp_path / "f", total=1000)
    assert (tmp_path / "f").read_bytes() == BODY[:1000]


def test_nobody_listening_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed):
        _download("http://127.0.0.1:9/file", tmp_path / "f")


@pytest.mark.parametrize("url", ["ftp://host/file", "data:text/plain,hi", "gopher://x", "file"])
def test_other_kinds_of_addresses_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(DownloadFailed, match="only http"):
        _download(url, tmp_path / "f")


def test_a_link_in_place_of_the_partial_file_is_not_followed(
    tmp_path: Path, server: FaultyServer
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / "f").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        _download(f"{server.url}/file", tmp_path / "f")
    assert victim.read_bytes() == b"precious"

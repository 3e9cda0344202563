"""What processes said last: trusted only where it can be read."""

import pytest

from steelyard.contract.errors import EngineLost
from steelyard.fleet.exits import process_exit


@pytest.mark.parametrize(
    "report", [b"", b"\n", b"plain words", b"\xff\xfe", b"[" * 100_000, b"{}", b"null"]
)
def test_last_words_that_cannot_be_read_are_no_obstacle(report: bytes) -> None:
    ended = process_exit(1, name="engine-0", pid=7, report=report, tail=["a", "b"])
    assert isinstance(ended.error, EngineLost)
    assert "engine-0" in str(ended.error)

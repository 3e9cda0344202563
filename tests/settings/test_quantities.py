"""Sizes are written as people write them, without ambiguity and without rounding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.settings.quantities import BadValue, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("1KiB", 1024),
        ("1Ki", 1024),
        ("1kB", 1000),
        ("1.5 GiB", 3 * 512 * 1024**2),
        ("2TB", 2 * 10**12),
        (" 8MiB ", 8 * 1024**2),
        (4096, 4096),
    ],
)
def test_a_size_is_read(text: object, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "1M", "1g", "1 mb", "-1MiB", "1e3", "1,5GiB", "٣MiB", True, 1.5, None, "9" * 99],
)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(BadValue):
        parse_bytes(text)


@given(st.integers(min_value=0, max_value=2**60))
def test_a_formatted_size_reads_back_exactly(size_bytes: int) -> None:
    assert parse_bytes(format_bytes(size_bytes)) == size_bytes

"""Recorded traffic and prompt files."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load.traces import read_azure, read_mooncake, read_prompts

_AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:59.5000000,374,44
2023-11-17 00:00:02.2500000,396,109
2023-11-17 00:00:01.0000000,91,0
"""


def test_an_azure_trace_begins_at_zero_and_is_sorted(tmp_path: Path) -> None:
    trace = read_azure(_written(tmp_path / "a.csv", _AZURE))
    np.testing.assert_allclose(trace.times_s, [0, 1.5, 2.75])
    assert list(trace.input_tokens) == [374, 91, 396]
    assert list(trace.output_tokens) == [44, 1, 109], "an answer has at least one token"


def test_a_window_of_a_trace_begins_at_its_own_zero(tmp_path: Path) -> None:
    trace = read_azure(_written(tmp_path / "a.csv", _AZURE)).between(1.0, 2.75)
    np.testing.assert_allclose(trace.times_s, [0.5])
    assert list(trace.input_tokens) == [91]


def test_a_mooncake_trace_keeps_the_blocks_of_its_prompts(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 3000, "input_length": 513, "output_length": 7, "hash_ids": [0, 2]},
        {"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [0]},
    ]
    text = "\n".join(map(json.dumps, rows)) + "\n\n"
    trace = read_mooncake(_written(tmp_path / "m.jsonl", text))
    np.testing.assert_allclose(trace.times_s, [0, 3])
    assert trace.blocks == ((0,), (0, 2))


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (read_azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,5,5\nx,1,1\n"),
        (read_azure, "TIMESTAMP,ContextTokens\n2023-11-16 18:00:00,5\n"),
        (read_azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,-5,5\n"),
        (read_azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n"),
        (read_azure, ""),
        (read_azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,5,9" + "0" * 30),
        (read_azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "x" * 200_000),
        (read_mooncake, "{}"),
        (read_mooncake, '{"timestamp":' + "[" * 100_000),
        (
            read_mooncake,
            '{"timestamp":0,"input_length":5,"output_length":1' + "0" * 18 + ',"hash_ids":[1]}',
        ),
        (read_mooncake, "not json"),
        (
            read_mooncake,
            '{"timestamp":0,"input_length":513,"output_length":1,"hash_ids":[1]}',
        ),
        (read_mooncake, ""),
        (read_prompts, ""),
        (read_prompts, "{}"),
        (read_prompts, '{"x":' + "[" * 100_000),
        (read_prompts, '{"turns": "one"}'),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, reader, text: str) -> None:
    path = _written(tmp_path / "broken.jsonl", text)
    with pytest.raises(InvalidRequest) as caught:
        reader(path)
    assert caught.value.param == str(path)


_PACKED = gzip.compress(_AZURE.encode() * 500)


@pytest.mark.parametrize("reader", [read_azure, read_mooncake, read_prompts])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("latin.csv", b"TIMESTAMP,ContextTokens\n\xff\xfe"),
        ("short.csv.gz", _PACKED[:-20]),
        ("flipped.csv.gz", _PACKED[:60] + b"\xff\xff" + _PACKED[62:]),
        ("other.csv.gz", b"no gzip at all"),
    ],
)
def test_a_file_that_cannot_be_read_to_its_end_is_named(
    tmp_path: Path, reader, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidRequest) as caught:
        reader(path)
    assert caught.value.param == str(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"gone\.csv: No such file"):
        read_azure(tmp_path / "gone.csv")


def test_prompts_come_from_turns_prompts_and_plain_lines(tmp_path: Path) -> None:
    rows = '{"question_id": 1, "turns": ["One?", "Two?"]}\n{"prompt": "def f():\\n    pass"}\n'
    zipped = tmp_path / "p.jsonl.gz"
    zipped.write_bytes(gzip.compress(rows.encode()))
    assert read_prompts(zipped) == [("One?", "Two?"), ("def f():\n    pass",)]
    assert read_prompts(_written(tmp_path / "p.txt", "A line\n\nAnother\n")) == [
        ("A line",),
        ("Another",),
    ]


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path

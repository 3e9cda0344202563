"""Streams of tokens become text that never has to be taken back."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.checkpoints import GGUFVocabulary, open_checkpoint
from steelyard.checkpoints.gguf_file import read_gguf
from steelyard.text import Tokenizer, open_tokenizer
from tests.checkpoints.builders import write_gguf
from tests.text.test_tokenizers import _sentencepiece

MAX_COST_S = 10e-6


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = write_gguf(tmp_path_factory.mktemp("detokenizing") / "v.gguf")
    return open_tokenizer(GGUFVocabulary(read_gguf(path)))


@pytest.fixture(scope="module")
def sentencepiece() -> Tokenizer:
    return Tokenizer(_sentencepiece(strips=True), "t")


CHUNKS = st.lists(st.lists(st.integers(-1, 275), max_size=4), max_size=20)


@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece"])
@given(chunks=CHUNKS, skip=st.booleans())
def test_the_parts_joined_are_the_whole_and_no_part_is_taken_back(
    request: pytest.FixtureRequest, kind: str, chunks: list[list[int]], skip: bool
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    ids = [token_id for chunk in chunks for token_id in chunk]
    whole = tokenizer.decode(ids, skip_special_tokens=skip)
    stream, shown = tokenizer.stream(skip_special_tokens=skip), ""
    for chunk in chunks:
        shown += stream.push(chunk)
        assert whole.startswith(shown)
    assert shown + stream.flush() == whole


@given(text=st.text(max_size=30))
def test_half_a_character_is_never_shown(byte_level: Tokenizer, text: str) -> None:
    stream, shown = byte_level.stream(skip_special_tokens=False), ""
    for token_id in byte_level.encode(text):
        shown += stream.push((token_id,))
        assert text.startswith(shown)
    assert shown == text
    assert stream.flush() == ""


def test_a_character_is_shown_with_its_last_byte(byte_level: Tokenizer) -> None:
    stream = byte_level.stream()
    parts = [stream.push((token_id,)) for token_id in byte_level.encode("é😀")]
    assert parts == ["", "é", "", "", "", "😀"]


def test_bytes_that_are_no_text_become_replacement_characters(byte_level: Tokenizer) -> None:
    ids = {byte: byte_level.token_id(_letter(byte)) for byte in (0xFF, 0xE2, 0x82, 0x41)}
    stream = byte_level.stream()
    assert stream.push([ids[0xFF] or 0]) == "\ufffd"
    assert stream.push([ids[0xE2] or 0, ids[0x82] or 0]) == ""
    assert stream.push([ids[0x41] or 0]) == "\ufffdA"
    assert stream.push([ids[0xE2] or 0]) == ""
    assert stream.flush() == "\ufffd"


def test_streams_do_not_disturb_each_other(byte_level: Tokenizer) -> None:
    first, second = byte_level.stream(), byte_level.stream()
    ids = byte_level.encode("é")
    assert first.push(ids[:1]) == ""
    assert second.push(byte_level.encode("a")) == "a"
    assert first.push(ids[1:]) == "é"


def test_a_token_costs_less_than_ten_microseconds(smollm2_path: Path) -> None:
    tokenizer = open_tokenizer(open_checkpoint(smollm2_path).vocabulary)
    ids = tokenizer.encode("The naïve fox said “hé” 😀 to 1,024 dogs.\n" * 200)

    def cost_s() -> float:
        stream = tokenizer.stream()
        start_s = time.perf_counter()
        for token_id in ids:
            stream.push((token_id,))
        return (time.perf_counter() - start_s) / len(ids)

    assert min(cost_s() for _ in range(3)) < MAX_COST_S


def _letter(byte: int) -> str:
    from tests.checkpoints.builders import byte_alphabet

    return byte_alphabet()[byte]

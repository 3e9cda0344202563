"""Tokenizers from both sources, byte-level and SentencePiece, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers

from steelyard.checkpoints import GGUFVocabulary, TokenizerFile
from steelyard.checkpoints.gguf_file import read_gguf
from steelyard.contract.errors import CheckpointError, InvalidRequest
from steelyard.text import Tokenizer, open_tokenizer
from steelyard.text.gguf_tokenizer import build_from_gguf
from tests.checkpoints.builders import byte_alphabet, tiny_vocabulary, token_types, write_gguf


def _vocabulary(tmp_path: Path, **fields: Any) -> GGUFVocabulary:
    named = {f"tokenizer.ggml.{key}": value for key, value in fields.items()}
    return GGUFVocabulary(read_gguf(write_gguf(tmp_path / "v.gguf", fields=named)))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return open_tokenizer(_vocabulary(tmp_path_factory.mktemp("tiny")))


@given(text=st.text())
def test_any_text_survives_the_way_to_tokens_and_back(tiny: Tokenizer, text: str) -> None:
    ids = tiny.encode(text)
    assert tiny.decode(ids, skip_special_tokens=False) == text


def test_merges_are_applied_and_digits_stay_single(tiny: Tokenizer) -> None:
    pieces = [tiny.token_text(i) for i in tiny.encode("hello world 12")]
    assert pieces == ["hello", " world", " ", "1", "2"]


def test_control_tokens_are_recognised_in_text_and_left_out_of_text(tiny: Tokenizer) -> None:
    ids = tiny.encode("<|im_start|>he<|im_end|>")
    assert (ids[0], ids[-1]) == (1, 2)
    assert tiny.decode(ids) == "he"
    assert tiny.decode(ids, skip_special_tokens=False) == "<|im_start|>he<|im_end|>"
    assert tiny.special_ids == {0, 1, 2}


def test_user_defined_tokens_are_whole_but_part_of_the_text(tiny: Tokenizer) -> None:
    assert tiny.encode("a<think>b")[1] == 3
    assert tiny.decode(tiny.encode("a<think>b")) == "a<think>b"


def test_single_tokens_have_bytes_and_a_text_for_people(tiny: Tokenizer) -> None:
    first = tiny.encode("é")[0]
    assert tiny.token_bytes(first) == b"\xc3"
    assert tiny.token_text(first) == "\ufffd"
    assert tiny.token_bytes(1) == b"<|im_start|>"
    assert tiny.token_id("<|im_end|>") == 2
    assert tiny.token_id("no such token") is None


def test_ids_that_do_not_exist_stand_for_nothing(tiny: Tokenizer) -> None:
    odd = [-1, tiny.vocab_size, 2**31, 2**32, 2**40]
    assert tiny.decode([*odd, *tiny.encode("hello")]) == "hello"
    assert [tiny.token_bytes(i) for i in odd] == [b""] * 5


def test_text_that_is_no_unicode_is_refused(tiny: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="Unicode"):
        tiny.encode("broken \ud800 surrogate")


@pytest.mark.parametrize(
    ("bos", "eos", "expected"),
    [(True, True, [1, 0, 2]), (True, False, [1, 0]), (False, True, [0, 2]), (False, False, [0])],
)
def test_bos_and_eos_are_added_as_the_file_says(
    tmp_path: Path, bos: bool, eos: bool, expected: list[int]
) -> None:
    tokenizer = open_tokenizer(_vocabulary(tmp_path, add_bos_token=bos, add_eos_token=eos))
    assert tokenizer.encode("<|endoftext|>", add_special_tokens=True) == expected
    assert tokenizer.encode("<|endoftext|>") == [0]


def test_llama3_files_begin_with_bos_unless_they_say_otherwise(tmp_path: Path) -> None:
    silent = open_tokenizer(_vocabulary(tmp_path, pre="llama-bpe", add_bos_token=None))
    assert silent.encode("", add_special_tokens=True) == [1]
    stated = open_tokenizer(_vocabulary(tmp_path, pre="llama-bpe", add_bos_token=False))
    assert stated.encode("", add_special_tokens=True) == []


def test_a_tokenizer_json_gives_the_same_tokens_as_the_gguf_vocabulary(
    tmp_path: Path, tiny: Tokenizer
) -> None:
    build_from_gguf(_vocabulary(tmp_path)).save(str(tmp_path / "tokenizer.json"))
    other = open_tokenizer(TokenizerFile(tmp_path / "tokenizer.json"))
    text = "hello<|im_end|> wörld 123 <think>"
    assert other.encode(text) == tiny.encode(text)
    assert other.special_ids == tiny.special_ids


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"[]", b"\xff\xfe", b'{"model": 7}'])
def test_a_tokenizer_json_that_is_none_is_named(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(body)
    with pytest.raises(CheckpointError) as caught:
        open_tokenizer(TokenizerFile(path))
    assert caught.value.param == str(path)


@pytest.mark.parametrize(
    "decoder", [None, decoders.WordPiece(), decoders.Metaspace(), decoders.Strip(" ", 1, 0)]
)
def test_decoders_that_are_not_understood_are_refused_by_name(tmp_path: Path, decoder: Any) -> None:
    backend = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    if decoder is not None:
        backend.decoder = decoder
    with pytest.raises(CheckpointError, match="decoder"):
        Tokenizer(backend, "tokenizer.json")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model": "llama"}, "llama"),
        ({"model": None}, "''"),
        ({"pre": "never-heard-of"}, "never-heard-of"),
        ({"tokens": None}, "no vocabulary"),
        ({"tokens": ["a", "b", "a"], "token_type": None, "merges": None}, "twice"),
        ({"merges": ["a"]}, "no pair"),
        ({"merges": ["zzz yyy"]}, "not in the vocabulary"),
        ({"token_type": [3] * 5000}, "more kinds"),
        ({"add_bos_token": True, "bos_token_id": None}, "BOS"),
        ({"add_bos_token": True, "bos_token_id": 60_000}, "BOS"),
        ({"tokens": [7, 8], "merges": None}, "texts"),
    ],
)
def test_vocabularies_that_cannot_be_rebuilt_are_refused_with_the_reason(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    vocabulary = _vocabulary(tmp_path, **fields)
    with pytest.raises(CheckpointError, match=reason) as caught:
        open_tokenizer(vocabulary)
    assert caught.value.param == str(vocabulary.file.path)


def _sentencepiece(strips: bool) -> tokenizers.Tokenizer:
    """Like Llama 2's: pieces of text, and every byte as a token of its own."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "b", "▁a", "▁ab", "ab", "é", "▁▁"]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[("▁", "a"), ("a", "b"), ("▁a", "b"), ("▁", "▁")],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strips else steps)
    backend.add_special_tokens(["<s>", "</s>"])
    return backend


@pytest.mark.parametrize("strips", [True, False])
@given(ids=st.lists(st.integers(0, 266), max_size=30), skip=st.booleans())
def test_sentencepiece_tokens_are_read_as_the_library_reads_them(
    strips: bool, ids: list[int], skip: bool
) -> None:
    backend = _sentencepiece(strips)
    tokenizer = Tokenizer(backend, "t")
    expected = backend.decode(ids, skip_special_tokens=skip)
    assert tokenizer.decode(ids, skip_special_tokens=skip) == expected


def test_single_sentencepiece_tokens_keep_their_space() -> None:
    tokenizer = Tokenizer(_sentencepiece(strips=True), "t")
    ids = tokenizer.encode("a\n")
    assert [tokenizer.token_bytes(i) for i in ids] == [b" a", b"\n"]


@given(ids=st.lists(st.integers(0, 300), max_size=30), skip=st.booleans())
def test_byte_level_tokens_are_read_as_the_library_reads_them(ids: list[int], skip: bool) -> None:
    tokens, _ = tiny_vocabulary()
    backend = tokenizers.Tokenizer(
        models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[])
    )
    backend.decoder = decoders.ByteLevel()
    kinds = zip(tokens, token_types(tokens), strict=True)
    backend.add_special_tokens([token for token, kind in kinds if kind == 3])
    backend.add_tokens(["<｜foreign▁letters｜>", "two words", byte_alphabet()[0xE9]])
    expected = backend.decode(ids, skip_special_tokens=skip)
    assert Tokenizer(backend, "t").decode(ids, skip_special_tokens=skip) == expected

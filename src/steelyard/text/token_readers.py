"""What single tokens stand for, by the tokenizer's kind of decoder.

    byte-level      every token is a string of bytes; the text is their UTF-8 reading
    sentencepiece   a token is text with ▁ for a space, or one byte written <0x0A>

`reader_for` refuses any other decoder by its name. Streams of tokens are read by `detokenizer`.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import tokenizers

from steelyard.contract.errors import CheckpointError
from steelyard.text.detokenizer import (
    ByteLevelDetokenizer,
    Detokenizer,
    SentencePieceDetokenizer,
)

__all__ = ["ByteLevelReader", "SentencePieceReader", "TokenReader", "Vocabulary", "reader_for"]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE_STEPS = ["Replace", "ByteFallback", "Fuse"]

PieceT = TypeVar("PieceT")


class TokenReader(Protocol):
    """Reads tokens by id. Ids that do not exist stand for nothing."""

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to the text, special tokens included."""
        ...

    def stream(self, *, skip_special_tokens: bool) -> Detokenizer:
        """A new incremental reader; skipped tokens add nothing."""
        ...


class Vocabulary:
    """The spelling of every token, by id."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.size = backend.get_vocab_size(with_added_tokens=True)
        self._end = max(self.size, *(token_id + 1 for token_id in added), 0)

    def __contains__(self, token_id: int) -> bool:
        return 0 <= token_id < self._end

    def spelling(self, token_id: int) -> str:
        """Empty for ids that do not exist."""
        return (self._backend.id_to_token(token_id) or "") if token_id in self else ""


class ByteLevelReader:
    """Byte-level BPE: GPT-2, Llama 3, Qwen, DeepSeek, SmolLM and most others."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._every = _Pieces(vocabulary, bytes_of_spelling, skips=False)
        self._plain = _Pieces(vocabulary, bytes_of_spelling, skips=True)

    def token_bytes(self, token_id: int) -> bytes:
        return self._every[token_id]

    def stream(self, *, skip_special_tokens: bool) -> Detokenizer:
        return ByteLevelDetokenizer(self._plain if skip_special_tokens else self._every)


class SentencePieceReader:
    """SentencePiece with byte fallback: Llama 2, Mistral, Gemma."""

    def __init__(self, vocabulary: Vocabulary, *, drops_first_space: bool) -> None:
        self._drops_first_space = drops_first_space
        self._every = _Pieces(vocabulary, _sentencepiece, skips=False)
        self._plain = _Pieces(vocabulary, _sentencepiece, skips=True)

    def token_bytes(self, token_id: int) -> bytes:
        piece = self._every[token_id]
        return piece if isinstance(piece, bytes) else piece.encode()

    def stream(self, *, skip_special_tokens: bool) -> Detokenizer:
        return SentencePieceDetokenizer(
            self._plain if skip_special_tokens else self._every,
            drops_first_space=self._drops_first_space,
        )


def reader_for(backend: tokenizers.Tokenizer, vocabulary: Vocabulary, where: str) -> TokenReader:
    """The reader that the tokenizer's decoder asks for; `where` names its file in the error."""
    steps = _decoder_steps(backend)
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"]:
        return ByteLevelReader(vocabulary)
    replaces = steps and (steps[0].get("pattern"), steps[0].get("content")) == (
        {"String": "▁"},
        " ",
    )
    if replaces and kinds == _SENTENCEPIECE_STEPS:
        return SentencePieceReader(vocabulary, drops_first_space=False)
    if replaces and kinds == [*_SENTENCEPIECE_STEPS, "Strip"]:
        strip = steps[-1]
        if (strip.get("content"), strip.get("start"), strip.get("stop")) == (" ", 1, 0):
            return SentencePieceReader(vocabulary, drops_first_space=True)
    raise CheckpointError(
        f"the tokenizer's decoder ({', '.join(map(str, kinds)) or 'none'}) is not supported",
        param=where,
        fix="supported are byte-level BPE and SentencePiece with byte fallback",
    )


def bytes_of_spelling(spelling: str) -> bytes:
    """A byte-level token's bytes. One with a letter outside the alphabet stands for itself."""
    try:
        return bytes([_BYTE_BY_LETTER[letter] for letter in spelling])
    except KeyError:
        return spelling.encode()


class _Pieces(dict[int, PieceT]):
    """What tokens stand for, by id; worked out when first asked for. Skipped tokens are empty."""

    def __init__(
        self, vocabulary: Vocabulary, read: Callable[[str], PieceT], *, skips: bool
    ) -> None:
        super().__init__()
        self._vocabulary = vocabulary
        self._read = read
        self._skipped: frozenset[int] = vocabulary.special_ids if skips else frozenset()

    def __missing__(self, token_id: int) -> PieceT:
        is_skipped = token_id in self._skipped
        piece = self._read("" if is_skipped else self._vocabulary.spelling(token_id))
        if token_id in self._vocabulary:  # ids from outside must not make this grow
            self[token_id] = piece
        return piece


def _sentencepiece(spelling: str) -> bytes | str:
    """Bytes for a byte token such as `<0x0A>`, text for any other."""
    match = _BYTE_TOKEN.fullmatch(spelling)
    return bytes([int(match[1], 16)]) if match else spelling.replace("▁", " ")


def _decoder_steps(backend: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    if backend.decoder is None:
        return []
    state: dict[str, Any] = json.loads(backend.decoder.__getstate__())
    if state.get("type") == "Sequence":
        return list(state.get("decoders", ()))
    return [state]


def _alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, other bytes follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(0x100) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    letters.update({chr(0x100 + index): byte for index, byte in enumerate(rest)})
    return letters


_BYTE_BY_LETTER = _alphabet()

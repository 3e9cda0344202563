"""Turns a stream of token ids into text that never has to be taken back.

The invariant: the texts of all `push` calls and of `flush`, joined, are `Tokenizer.decode` of all
ids. What could still change (half a UTF-8 character) is held back until it cannot. Stop strings
are found afterwards, in text, by `stop_strings`.
"""

import codecs
from collections.abc import Iterable, Mapping
from typing import Protocol

__all__ = ["ByteLevelDetokenizer", "Detokenizer", "SentencePieceDetokenizer"]

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Detokenizer(Protocol):
    """One stream. Not for use by several threads at once."""

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that has become certain with these tokens; often empty for half a character."""
        ...

    def flush(self) -> str:
        """What was held back, now that no more tokens come. Ends the stream."""
        ...


class ByteLevelDetokenizer:
    """Every token is bytes; invalid UTF-8 becomes U+FFFD by Unicode's maximal-subpart practice."""

    def __init__(self, pieces: Mapping[int, bytes]) -> None:
        self._pieces = pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Iterable[int]) -> str:
        pieces = self._pieces
        return self._utf8.decode(b"".join([pieces[token_id] for token_id in token_ids]))

    def flush(self) -> str:
        return self._utf8.decode(b"", True)


class SentencePieceDetokenizer:
    """Tokens are texts, or single bytes.

    A run of bytes is read as a whole: when it is not valid UTF-8, each of its bytes becomes U+FFFD.
    So it is certain only once it has ended, and is held back until then.
    """

    def __init__(self, pieces: Mapping[int, bytes | str], *, drops_first_space: bool) -> None:
        self._pieces = pieces
        self._run = bytearray()
        self._drops_space = drops_first_space

    def push(self, token_ids: Iterable[int]) -> str:
        parts = []
        for token_id in token_ids:
            piece = self._pieces[token_id]
            if isinstance(piece, bytes):
                self._run += piece
            elif piece:
                parts.append(self._end_run())
                parts.append(piece)
        return self._begun("".join(parts))

    def flush(self) -> str:
        return self._begun(self._end_run())

    def _end_run(self) -> str:
        if not self._run:
            return ""
        run = bytes(self._run)
        self._run.clear()
        try:
            return run.decode()
        except UnicodeDecodeError:
            return _REPLACEMENT * len(run)

    def _begun(self, text: str) -> str:
        """At the start of the stream, without the space that the tokenizer put there."""
        if not self._drops_space or not text:
            return text
        self._drops_space = False
        return text.removeprefix(" ")

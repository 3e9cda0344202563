"""Text to token ids and back, by the model's own tokenizer.

Wraps the `tokenizers` library for both sources of a tokenizer, a `tokenizer.json` and a GGUF
vocabulary. Chat messages become text in `chat_template`; what tokens stand for is in
`token_readers`, streams of them in `detokenizer`.
"""

from collections.abc import Iterable
from pathlib import Path

import tokenizers

from steelyard.checkpoints import GGUFVocabulary, TokenizerFile
from steelyard.contract.errors import CheckpointError, InvalidRequest
from steelyard.text.detokenizer import Detokenizer
from steelyard.text.gguf_tokenizer import build_from_gguf
from steelyard.text.token_readers import Vocabulary, reader_for

__all__ = ["Tokenizer", "open_tokenizer"]


def open_tokenizer(source: TokenizerFile | GGUFVocabulary) -> "Tokenizer":
    """Load the tokenizer of a checkpoint. Raises `CheckpointError` when it cannot be used."""
    if isinstance(source, TokenizerFile):
        return Tokenizer(_load(source.path), str(source.path))
    return Tokenizer(build_from_gguf(source), str(source.file.path))


class Tokenizer:
    """Immutable once made, but for caches; safe to share."""

    def __init__(self, backend: tokenizers.Tokenizer, where: str) -> None:
        """`where` names the tokenizer's file in errors."""
        self._backend = backend
        self._vocabulary = Vocabulary(backend)
        self._reader = reader_for(backend, self._vocabulary, where)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, added ones included; the model's embedding may have more."""
        return self._vocabulary.size

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that never stand for text; `decode` leaves them out unless told otherwise."""
        return self._vocabulary.special_ids

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """The ids of a text. Special tokens written out in the text are recognised as such.

        Raises `InvalidRequest` for text that is not Unicode (lone surrogates).
        """
        try:
            # A batch of one: unlike `encode` it releases the interpreter lock while it works, so
            # that a thread with a long prompt does not stop the event loop.
            [encoding] = self._backend.encode_batch_fast(
                [text], add_special_tokens=add_special_tokens
            )
            return list(encoding.ids)
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidRequest("the text is not valid Unicode") from error

    def decode(self, token_ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids; ids that do not exist stand for nothing."""
        stream = self.stream(skip_special_tokens=skip_special_tokens)
        return stream.push(token_ids) + stream.flush()

    def stream(self, *, skip_special_tokens: bool = True) -> Detokenizer:
        """A new incremental `decode`."""
        return self._reader.stream(skip_special_tokens=skip_special_tokens)

    def token_id(self, token: str) -> int | None:
        """The id of a token by its spelling in the vocabulary; None when there is none."""
        return self._backend.token_to_id(token)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to the text, special tokens included."""
        return self._reader.token_bytes(token_id)

    def token_text(self, token_id: int) -> str:
        """A token alone, for people: incomplete characters show as U+FFFD."""
        return self.token_bytes(token_id).decode(errors="replace")


def _load(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises bare `Exception` for every way in which the file can be wrong.
        raise CheckpointError(
            f"cannot be read as a tokenizer: {error}",
            param=str(path),
            fix="fetch the model again; or the file is newer than the installed `tokenizers`",
        ) from error

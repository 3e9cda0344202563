"""The vocabulary inside a GGUF file: tokens, merges, kinds of token, name of the pre-tokenizer.

Hands out what the file says; `text.tokenizer` makes a tokenizer of it.
"""

from dataclasses import dataclass

from steelyard.checkpoints._reading import damaged
from steelyard.checkpoints.gguf_file import GGUFFile

__all__ = ["GGUFVocabulary"]

_CONTROL = 3
_USER_DEFINED = 4


@dataclass(frozen=True, slots=True)
class GGUFVocabulary:
    """Reads from the parsed head on every call; the lists are long, so ask once."""

    file: GGUFFile

    @property
    def model(self) -> str:
        """`gpt2` for byte-level BPE, `llama` for SentencePiece, …; empty when not stated."""
        return self.file.string("tokenizer.ggml.model") or ""

    @property
    def pre_tokenizer(self) -> str:
        """llama.cpp's name of the rule that cuts text before BPE; `default` when not stated."""
        return self.file.string("tokenizer.ggml.pre") or "default"

    @property
    def adds_bos(self) -> bool | None:
        """Whether encoding a text begins with the BOS token; None when not stated."""
        return self.file.boolean("tokenizer.ggml.add_bos_token")

    @property
    def adds_eos(self) -> bool | None:
        """Whether encoding a text ends with the EOS token; None when not stated."""
        return self.file.boolean("tokenizer.ggml.add_eos_token")

    def tokens(self) -> list[str]:
        """Texts by token id; byte-level vocabularies spell bytes in the GPT-2 alphabet."""
        tokens = self.file.strings("tokenizer.ggml.tokens")
        if not tokens:
            raise damaged(self.file.path, "it holds no vocabulary (tokenizer.ggml.tokens)")
        return tokens

    def merges(self) -> list[tuple[str, str]]:
        """BPE merges, first the one with the highest rank; empty for models without."""
        merges = []
        for index, merge in enumerate(self.file.strings("tokenizer.ggml.merges") or []):
            left, _, right = merge.partition(" ")
            if not left or not right:
                raise damaged(self.file.path, f"merge {index} ({merge!r}) is no pair")
            merges.append((left, right))
        return merges

    def control_ids(self) -> list[int]:
        """Tokens that never stand for text, such as `<|im_end|>`."""
        return self._ids_of_kind(_CONTROL)

    def user_defined_ids(self) -> list[int]:
        """Tokens for text that is always matched whole, such as `<think>`."""
        return self._ids_of_kind(_USER_DEFINED)

    def _ids_of_kind(self, kind: int) -> list[int]:
        kinds = self.file.integers("tokenizer.ggml.token_type") or []
        return [token_id for token_id, value in enumerate(kinds) if value == kind]

"""What the door asks of the package `text`, as protocols.

Small on purpose: the gateway is tested with a byte-level model of thirty lines, and any tokenizer
that can do this can serve.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

__all__ = ["TextModel", "TextStream"]


class TextStream(Protocol):
    """Turns the tokens of one stream into text as they come."""

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that has become certain; an incomplete character is held back."""
        ...

    def flush(self) -> str:
        """What was held back, with replacement characters; ends the stream."""
        ...


class TextModel(Protocol):
    """Between text and tokens for one model. Methods are pure and may run in any thread."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of plain text."""
        ...

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> list[int]:
        """Token ids of a conversation. Raises `InvalidRequest` for one it cannot express."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a whole sequence."""
        ...

    def stream(self, *, skip_special_tokens: bool = True) -> TextStream:
        """A fresh stream."""
        ...

    def token_text(self, token_id: int) -> str:
        """One token as text, for log-probabilities; bytes that are no text are replaced."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """One token as the bytes it stands for."""
        ...

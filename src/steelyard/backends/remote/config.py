"""What the dialect of OpenAI-compatible servers is told. `cli.wiring` fills it in."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["Mode", "RemoteConfig", "TextCodec"]

Mode = Literal["auto", "tokens", "text"]


class TextCodec(Protocol):
    """What text mode needs of a tokenizer (`text.TextModel`)."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text."""
        ...

    def decode(self, token_ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """One model of a server."""

    served_as: str
    """What our clients call it."""
    model: str | None = None
    """What the server calls it; None: `served_as`, or the only one it has."""
    mode: Mode = "auto"
    """`tokens`: ids both ways; `text`: the server's answers are texts; `auto`: tokens if it can."""
    context_tokens: int
    """The model's own limit; that of the server counts where it tells one."""
    vocab_size: int
    end_token_ids: tuple[int, ...] = ()

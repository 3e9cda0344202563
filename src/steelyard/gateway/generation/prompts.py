"""From what a client wants continued to token ids.

Each kind of prompt knows how to encode itself; long ones do so in a thread, because the event
loop has other clients' tokens to deliver meanwhile.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from steelyard.contract.errors import InvalidRequest
from steelyard.gateway.ports import TextModel

__all__ = ["Conversation", "Prompt", "PromptEncoder", "TextPrompt", "TokenPrompt"]


class Prompt(Protocol):
    """Something to be continued."""

    @property
    def chars(self) -> int:
        """How much work encoding is, in characters."""
        ...

    def encode(self, text: TextModel, vocab_size: int) -> tuple[int, ...]:
        """Its token ids. Raises `InvalidRequest`."""
        ...

    def echo(self, text: TextModel) -> str:
        """It, as text, for `echo`."""
        ...


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Plain text."""

    text: str
    add_special_tokens: bool = True

    @property
    def chars(self) -> int:
        return len(self.text)

    def encode(self, text: TextModel, vocab_size: int) -> tuple[int, ...]:
        return tuple(text.encode(self.text, add_special_tokens=self.add_special_tokens))

    def echo(self, text: TextModel) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids chosen by the client."""

    ids: tuple[int, ...]

    @property
    def chars(self) -> int:
        return 0

    def encode(self, text: TextModel, vocab_size: int) -> tuple[int, ...]:
        if self.ids and not (min(self.ids) >= 0 and max(self.ids) < vocab_size):
            foreign = next(i for i in self.ids if not 0 <= i < vocab_size)
            raise InvalidRequest(
                f"{foreign} is not a token id; they are below {vocab_size}", param="prompt"
            )
        return self.ids

    def echo(self, text: TextModel) -> str:
        return text.decode(self.ids)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages, for the model's chat template."""

    messages: Sequence[dict[str, Any]]
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    @property
    def chars(self) -> int:
        return sum(len(message["content"]) for message in self.messages)

    def encode(self, text: TextModel, vocab_size: int) -> tuple[int, ...]:
        return tuple(
            text.encode_chat(
                self.messages,
                add_generation_prompt=self.add_generation_prompt,
                continue_final_message=self.continue_final_message,
            )
        )

    def echo(self, text: TextModel) -> str:
        raise AssertionError("chat has no echo")


class PromptEncoder:
    """Encodes prompts, long ones outside the event loop's thread."""

    def __init__(self, inline_chars: int) -> None:
        self._inline_chars = inline_chars
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenise")

    async def encode(
        self, prompts: Sequence[Prompt], text: TextModel, vocab_size: int
    ) -> list[tuple[int, ...]]:
        """Token ids of each prompt. Raises `InvalidRequest`."""
        if sum(prompt.chars for prompt in prompts) <= self._inline_chars:
            return [prompt.encode(text, vocab_size) for prompt in prompts]
        loop = asyncio.get_running_loop()
        return [
            await loop.run_in_executor(self._pool, prompt.encode, text, vocab_size)
            for prompt in prompts
        ]

    def close(self) -> None:
        """Free the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

"""The server's own tokenizer, asked in the dialect it speaks: vLLM's (ours too) or llama.cpp's.

The dialects differ in the names of the fields only. Without such an endpoint there is no
tokenizer here, and checks that need one are skipped.
"""

from collections.abc import Sequence
from typing import Any

from steelyard.lab.verify.endpoints import Messages
from steelyard.lab.verify.exchange import Exchange
from steelyard.lab.verify.findings import NotOffered
from steelyard.lab.verify.offer import Offer, post
from steelyard.lab.verify.target import Target

__all__ = ["RemoteTokenizer"]


class RemoteTokenizer:
    """`/tokenize` and `/detokenize` of one server. Raises `NotOffered` where they are missing."""

    def __init__(self, target: Target, offer: Offer) -> None:
        self._target = target
        self._offer = offer
        self.last: Exchange | None = None
        """For evidence."""

    async def encode(self, text: str) -> list[int]:
        """Ids of `text`, with the special tokens a completion would add."""
        vllm = {"model": self._offer.model, "prompt": text}
        answer = await self._ask("/tokenize", vllm, {"content": text, "add_special": True})
        return _ids(answer)

    async def encode_chat(self, messages: Messages) -> list[int]:
        """Ids of a conversation, the opening of the answer included."""
        vllm = {"model": self._offer.model, "messages": list(messages)}
        return _ids(await self._ask("/tokenize", vllm))

    async def decode(self, ids: Sequence[int]) -> str:
        """Text of ids."""
        body = {"model": self._offer.model, "tokens": list(ids)}
        answer = await self._ask("/detokenize", body, {"tokens": list(ids)})
        text = answer.get("prompt", answer.get("content"))
        if not isinstance(text, str):
            raise NotOffered("/detokenize answers in a shape that is not known")
        return text

    async def single(self, text: str) -> int | None:
        """The id of the one token that is exactly `text`; None when there is none."""
        ids = await self.encode(text)
        return ids[-1] if ids and await self.decode(ids[-1:]) == text else None

    async def _ask(self, path: str, *dialects: dict[str, Any]) -> dict[str, Any]:
        if path not in self._offer.paths:
            raise NotOffered(f"there is no {path}")
        for body in dialects:
            self.last = await post(self._target, path, body)
            if self.last.is_ok:
                answer = self.last.json()
                if isinstance(answer, dict) and (answer.get("tokens") != [] or path != "/tokenize"):
                    return answer
        raise NotOffered(f"{path} does not take what it would take here")


def _ids(answer: dict[str, Any]) -> list[int]:
    tokens = answer.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        raise NotOffered("/tokenize answers in a shape that is not known")
    return tokens

"""Log-probabilities in the two shapes OpenAI gives them.

Chat reports one object per token, text completions four parallel lists. Values come from the
engine; the text of single tokens comes from the text model.
"""

from collections.abc import Sequence

import msgspec

from steelyard.contract import TokenLogprobs
from steelyard.gateway.ports import TextModel

__all__ = ["ChatLogprobs", "ChatTokenLogprob", "CompletionLogprobs", "TopLogprob"]


class TopLogprob(msgspec.Struct):
    """A token that could have been drawn."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct):
    """A token that was drawn."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """`choices[].logprobs` of chat completions."""

    content: list[ChatTokenLogprob]
    refusal: None = None

    @classmethod
    def of(
        cls, ids: Sequence[int], values: Sequence[TokenLogprobs], text: TextModel
    ) -> "ChatLogprobs":
        """For consecutive tokens."""
        content = [
            ChatTokenLogprob(
                text.token_text(token_id),
                _finite(value.logprob),
                list(text.token_bytes(token_id)),
                [
                    TopLogprob(text.token_text(i), _finite(p), list(text.token_bytes(i)))
                    for i, p in zip(value.top_ids, value.top_logprobs, strict=True)
                ],
            )
            for token_id, value in zip(ids, values, strict=True)
        ]
        return cls(content)


class CompletionLogprobs(msgspec.Struct):
    """`choices[].logprobs` of text completions."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]
    """Where each token begins in the text of the choice, in characters."""

    @classmethod
    def of(
        cls, ids: Sequence[int], values: Sequence[TokenLogprobs], text: TextModel, offset: int
    ) -> "CompletionLogprobs":
        """For consecutive tokens, the first of which begins at `offset`."""
        tokens = [text.token_text(token_id) for token_id in ids]
        offsets: list[int] = []
        for token in tokens:
            offsets.append(offset)
            offset += len(token)
        tops: list[dict[str, float]] = []
        for token, value in zip(tokens, values, strict=True):
            top = {
                text.token_text(i): _finite(p)
                for i, p in zip(value.top_ids, value.top_logprobs, strict=True)
            }
            top.setdefault(token, _finite(value.logprob))
            tops.append(top)
        return cls(tokens, [_finite(value.logprob) for value in values], tops, offsets)

    @property
    def end(self) -> int:
        """Where the next token will begin."""
        return self.text_offset[-1] + len(self.tokens[-1]) if self.tokens else 0


def _finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI writes -9999.0 for a token that cannot be drawn."""
    return max(logprob, -9999.0)

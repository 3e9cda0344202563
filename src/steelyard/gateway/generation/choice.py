"""The tokens of one choice become the text its client may see.

Detokenises, looks for stop strings, drops the token that ended the stream, and counts. A stop
string ends the choice at the token that completed it: tokens behind it are neither shown nor
counted, whatever the engine sent along with it.
"""

from collections.abc import Sequence

from steelyard.contract import FinishReason, TokenChunk, Usage
from steelyard.contract.errors import EngineFailed
from steelyard.gateway.generation.order import Order, OrderedChoice
from steelyard.text.stop_strings import StopMatcher

__all__ = ["ChoiceText", "total_usage"]


class ChoiceText:
    """State of one choice. `push` chunks in order until `finish_reason` is set."""

    __slots__ = (
        "_cached_tokens",
        "_detokeniser",
        "_has_begun",
        "_matcher",
        "_min_tokens",
        "_shows_stop",
        "choice",
        "finish_reason",
        "kept",
        "tokens",
    )

    def __init__(self, order: Order, choice: OrderedChoice) -> None:
        fields = order.ask.fields
        self.choice = choice
        self.tokens = 0
        """Tokens that count: produced, and not behind a stop string."""
        self.kept = 0
        """How many tokens of the newest chunk count."""
        self.finish_reason: FinishReason | None = None
        self._detokeniser = order.served.text.stream(
            skip_special_tokens=fields.skip_special_tokens is not False
        )
        self._matcher = StopMatcher(order.stops) if order.stops else None
        self._shows_stop = bool(fields.include_stop_str_in_output)
        self._min_tokens = fields.min_tokens or 0
        self._has_begun = False
        self._cached_tokens = 0

    @property
    def usage(self) -> Usage:
        """What this choice adds to the usage of the request."""
        if not self.choice.is_first_of_prompt:
            return Usage(completion_tokens=self.tokens)
        return Usage(len(self.choice.request.prompt_ids), self.tokens, self._cached_tokens)

    def push(self, chunk: TokenChunk) -> str:
        """Text that has become certain. Raises `EngineFailed` on a gap or a repetition."""
        if chunk.start != self.tokens:
            raise EngineFailed(f"expected token {self.tokens} of the stream, got {chunk.start}")
        if chunk.usage is not None:
            self._cached_tokens = chunk.usage.cached_tokens
        if self._matcher is None and chunk.finish_reason is None and self._has_begun:
            self.kept = len(chunk.token_ids)
            self.tokens += self.kept
            return self._detokeniser.push(chunk.token_ids)
        return self._push_carefully(chunk)

    def _push_carefully(self, chunk: TokenChunk) -> str:
        text = "" if self._has_begun else self.choice.echo
        self._has_begun = True
        ids = chunk.token_ids
        if chunk.stop_token_id is not None and not self._shows_stop:
            ids = ids[:-1]
        if self._matcher is None:
            text += self._detokeniser.push(ids)
            self.kept = len(chunk.token_ids)
        else:
            text += self._push_until_stop(ids, self._matcher)
            if self._matcher.stop is None:
                self.kept = len(chunk.token_ids)
        self.tokens += self.kept
        if self.finish_reason is None and chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
            text += self._rest()
        return text

    def _push_until_stop(self, ids: Sequence[int], matcher: StopMatcher) -> str:
        """One token at a time, to know at which one a stop string was completed."""
        text = ""
        for at, token_id in enumerate(ids):
            piece = self._detokeniser.push((token_id,))
            if self.tokens + at < self._min_tokens:
                text += piece  # as with stop tokens, nothing stops before `min_tokens`
                continue
            text += matcher.push(piece)
            if matcher.stop is not None:
                self.kept = at + 1
                self.finish_reason = "stop"
                return text + matcher.stop if self._shows_stop else text
        return text

    def _rest(self) -> str:
        """What was held back: half a character, or the beginning of a stop string."""
        rest = self._detokeniser.flush()
        matcher = self._matcher
        if matcher is None:
            return rest
        text = matcher.push(rest)
        if matcher.stop is not None:
            self.finish_reason = "stop"
            return text + matcher.stop if self._shows_stop else text
        return text + matcher.flush()


def total_usage(texts: Sequence[ChoiceText]) -> Usage:
    """Of a whole request: prompts once each, completions together."""
    return Usage(
        sum(text.usage.prompt_tokens for text in texts),
        sum(text.usage.completion_tokens for text in texts),
        sum(text.usage.cached_tokens for text in texts),
    )

"""What goes into an engine and what comes out: token ids both ways, never text.

The gateway turns text into `GenerateRequest` and `TokenChunk` back into text; stop strings, which
are text, are its business. All types are frozen and cross process borders unchanged (`wire`).
"""

from typing import Literal

import msgspec

__all__ = [
    "FinishReason",
    "GenerateRequest",
    "SamplingParams",
    "TokenChunk",
    "TokenLogprobs",
    "Usage",
]

FinishReason = Literal["stop", "length"]
"""`stop`: an end or stop token was drawn. `length`: `max_tokens` or the context is used up."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the next token is drawn from the logits. The door has validated the ranges.

    Randomness is a function of (`seed`, position in the sequence) alone, so a stream that is
    continued on another replica draws the tokens it would have drawn on the first.
    """

    max_tokens: int
    """Tokens to produce at most, `emitted_ids` of a continued request included; ≥ 1."""
    seed: int = 0
    """Any 64-bit value; the door draws one when the client gave none."""
    temperature: float = 1.0
    """0 means greedy: the most likely token, the lowest id among equals."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens whose mass reaches this; 1 keeps all."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the most likely one; 0 drops none."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of every token already produced."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence from the logit of every token already produced."""
    repetition_penalty: float = 1.0
    """Divides positive (multiplies negative) logits of tokens seen in prompt or output."""
    logit_bias: dict[int, float] = {}
    """Added to the logits of these token ids."""
    min_tokens: int = 0
    """End and stop tokens are not drawn before this many tokens were produced."""
    stop_token_ids: tuple[int, ...] = ()
    """Token ids that end the stream, besides the model's own end tokens."""
    ignore_eos: bool = False
    """Do not stop at the model's own end tokens."""
    logprobs: int | None = None
    """None: none. k ≥ 0: the drawn token's log-probability and the k most likely ones."""

    @property
    def is_greedy(self) -> bool:
        """True when no randomness is involved."""
        return self.temperature == 0.0


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sequence to extend.

    A non-empty `emitted_ids` says that a stream is being continued: those tokens were already
    delivered, count towards `max_tokens`, and are not sent again.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    model: str = ""
    tenant: str = "default"
    priority: int = 0
    """Lower is served first; equals by arrival."""
    deadline_s: float | None = None
    """Seconds from receipt after which the answer is useless; None means never."""
    cache_salt: str = ""
    """Prefix-cache entries are shared only among requests of equal salt."""
    session: str = ""
    """Requests of one conversation, by the client's own name for it; routing may keep them
    together. Empty when unknown."""
    emitted_ids: tuple[int, ...] = ()
    trace: str | None = None
    """W3C `traceparent` of the caller; None when not traced."""


class TokenLogprobs(msgspec.Struct, frozen=True, omit_defaults=True):
    """Log-probabilities (natural log, of the unmodified distribution) at one position."""

    logprob: float
    """Of the token that was drawn."""
    top_ids: tuple[int, ...] = ()
    """The k most likely tokens, most likely first."""
    top_logprobs: tuple[float, ...] = ()


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts of a whole request, as its client sees it: failover leaves them unchanged."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose KV was found in the cache instead of being computed."""


class TokenChunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consecutive tokens of one stream.

        tokens of the completion:   0 1 2 3 4 5 6 7 8
        chunk(start=4, 3 tokens):           [4,   7)

    Chunks of a stream are delivered in order; `start` proves that none is lost or repeated.
    """

    request_id: str
    start: int
    """Index, within the completion, of the first token of this chunk."""
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: FinishReason | None = None
    """Set on the last chunk only."""
    stop_token_id: int | None = None
    """The end or stop token that was drawn; it is also the last of `token_ids`."""
    usage: Usage | None = None
    """So far; set on the first chunk, which tells the cached tokens, and on the last one."""

"""Refuses requests whose values could hurt a step: the engine's own check behind the door's.

The door gives clients friendlier messages; this one exists because a token id outside the
vocabulary or a NaN temperature would fail, or worse, every request in the batch. Whether there is
room is the scheduler's question.
"""

import math
from collections.abc import Callable, Collection

from steelyard.contract.errors import InvalidRequest
from steelyard.contract.requests import GenerateRequest, SamplingParams

__all__ = [
    "MAX_LOGPROBS",
    "MAX_REQUEST_ID_CHARS",
    "MAX_STEERED_TOKENS",
    "RESERVED_ID_PREFIX",
    "check_request",
]

MAX_LOGPROBS = 128
MAX_REQUEST_ID_CHARS = 256
MAX_STEERED_TOKENS = 4096
"""Entries of `logit_bias`, and of `stop_token_ids`."""

RESERVED_ID_PREFIX = "\0"
"""Request ids that the engine gives itself start like this; those of clients must not."""

_TOO_MANY = 2**31
"""Beyond what tensors of integers hold."""

_RANGES: tuple[tuple[str, Callable[[SamplingParams], bool], str], ...] = (
    ("max_tokens", lambda s: s.max_tokens >= 1, "at least 1"),
    ("min_tokens", lambda s: s.min_tokens >= 0, "not negative"),
    ("temperature", lambda s: 0 <= s.temperature < math.inf, "finite and not negative"),
    ("top_k", lambda s: 0 <= s.top_k < _TOO_MANY, f"in [0, {_TOO_MANY})"),
    ("top_p", lambda s: 0 < s.top_p <= 1, "in (0, 1]"),
    ("min_p", lambda s: 0 <= s.min_p <= 1, "in [0, 1]"),
    ("presence_penalty", lambda s: math.isfinite(s.presence_penalty), "finite"),
    ("frequency_penalty", lambda s: math.isfinite(s.frequency_penalty), "finite"),
    ("repetition_penalty", lambda s: 0 < s.repetition_penalty < math.inf, "finite and positive"),
    ("logprobs", lambda s: s.logprobs is None or 0 <= s.logprobs <= MAX_LOGPROBS,
     f"in [0, {MAX_LOGPROBS}]"),
    ("logit_bias", lambda s: len(s.logit_bias) <= MAX_STEERED_TOKENS,
     f"at most {MAX_STEERED_TOKENS} entries"),
    ("logit_bias", lambda s: all(map(math.isfinite, s.logit_bias.values())), "finite"),
    ("stop_token_ids", lambda s: len(s.stop_token_ids) <= MAX_STEERED_TOKENS,
     f"at most {MAX_STEERED_TOKENS} entries"),
)  # fmt: skip


def check_request(request: GenerateRequest, *, vocab_size: int) -> None:
    """Raise `InvalidRequest` naming the first value that is out of range."""
    if not 0 < len(request.request_id) <= MAX_REQUEST_ID_CHARS:
        raise InvalidRequest(
            f"must have 1 to {MAX_REQUEST_ID_CHARS} characters", param="request_id"
        )
    if not request.prompt_ids:
        raise InvalidRequest("must hold at least one token", param="prompt_ids")
    if request.deadline_s is not None and math.isnan(request.deadline_s):
        raise InvalidRequest("must be a number", param="deadline_s")
    sampling = request.sampling
    for name, holds, wanted in _RANGES:
        if not holds(sampling):
            raise InvalidRequest(f"must be {wanted}", param=name)
    if len(request.emitted_ids) >= sampling.max_tokens:
        raise InvalidRequest("leaves no token of max_tokens to produce", param="emitted_ids")
    _check_tokens("prompt_ids", request.prompt_ids, vocab_size)
    _check_tokens("emitted_ids", request.emitted_ids, vocab_size)
    _check_tokens("logit_bias", sampling.logit_bias, vocab_size)
    _check_tokens("stop_token_ids", sampling.stop_token_ids, vocab_size)


def _check_tokens(name: str, token_ids: Collection[int], vocab_size: int) -> None:
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        raise InvalidRequest(f"token ids must be in [0, {vocab_size})", param=name)

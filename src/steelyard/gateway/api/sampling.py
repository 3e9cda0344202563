"""From validated parameters to `SamplingParams`, under this server's limits.

Every refusal names the parameter, the value's trouble and the allowed range. Limits that need the
prompt's length (the model's context) are checked by `generation.plan`.
"""

import hashlib
import secrets
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from steelyard.contract import SamplingParams
from steelyard.contract.errors import InvalidRequest, UnsupportedFeature
from steelyard.gateway.api.generation import GenerationFields
from steelyard.gateway.config import RequestLimits

__all__ = ["SamplingPlan", "check_logprobs", "choice_seed", "plan_sampling"]

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """How to sample each choice, `max_tokens` and the choice's own seed still open."""

    base: SamplingParams
    """Its `max_tokens` is 1 until the prompt's length is known."""
    asked_tokens: int | None
    """`max_tokens` of the request; None when it named none."""
    choices: int
    stops: tuple[str, ...]

    def params(self, max_tokens: int, choice: int) -> SamplingParams:
        """Of one choice."""
        seed = choice_seed(self.base.seed, choice)
        return msgspec.structs.replace(self.base, max_tokens=max_tokens, seed=seed)


def choice_seed(seed: int, choice: int) -> int:
    """The seed of choice number `choice`: choice 0 draws what a request with n=1 would draw."""
    if choice == 0:
        return seed
    digest = hashlib.sha256(f"{seed}/{choice}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def plan_sampling(
    fields: GenerationFields,
    *,
    asked_tokens: int | None,
    logprobs: int | None,
    vocab_size: int,
    limits: RequestLimits,
) -> SamplingPlan:
    """Raises `InvalidRequest` for the first parameter that is out of bounds.

    `asked_tokens` and `logprobs` are spelt differently by the two endpoints.
    """
    _refuse_unbuilt(fields)
    choices = fields.n or 1
    if choices > limits.max_n:
        raise InvalidRequest(f"n is {choices}, the limit is {limits.max_n}", param="n")
    _check_max_tokens(asked_tokens, fields.min_tokens or 0, limits)
    base = SamplingParams(
        max_tokens=1,
        seed=secrets.randbits(63) if fields.seed is None else fields.seed,
        temperature=_or(fields.temperature, 1.0),
        top_k=max(_or(fields.top_k, 0), 0),
        top_p=_or(fields.top_p, 1.0),
        min_p=_or(fields.min_p, 0.0),
        presence_penalty=_or(fields.presence_penalty, 0.0),
        frequency_penalty=_or(fields.frequency_penalty, 0.0),
        repetition_penalty=_or(fields.repetition_penalty, 1.0),
        logit_bias=_logit_bias(fields.logit_bias, vocab_size, limits),
        min_tokens=fields.min_tokens or 0,
        stop_token_ids=_stop_token_ids(fields.stop_token_ids, vocab_size, limits),
        ignore_eos=bool(fields.ignore_eos),
        logprobs=logprobs,
    )
    return SamplingPlan(base, asked_tokens, choices, _stops(fields.stop, limits))


def check_logprobs(count: int, param: str, limits: RequestLimits) -> int:
    """`count`, when it is within the limit."""
    if count > limits.max_logprobs:
        raise InvalidRequest(f"{param} is {count}, the limit is {limits.max_logprobs}", param=param)
    return count


def _refuse_unbuilt(fields: GenerationFields) -> None:
    if fields.return_tokens_as_token_ids:
        raise UnsupportedFeature(
            "return_tokens_as_token_ids is not supported by this server",
            param="return_tokens_as_token_ids",
            fix="Use return_token_ids.",
        )
    options = fields.stream_options
    if options is None:
        return
    if not fields.stream:
        raise InvalidRequest(
            "stream_options is only allowed when stream is true", param="stream_options"
        )
    if options.continuous_usage_stats:
        raise UnsupportedFeature(
            "continuous_usage_stats is not supported by this server",
            param="stream_options.continuous_usage_stats",
            fix="Use include_usage.",
        )


def _check_max_tokens(asked: int | None, min_tokens: int, limits: RequestLimits) -> None:
    if asked is not None and limits.max_tokens is not None and asked > limits.max_tokens:
        raise InvalidRequest(
            f"max_tokens is {asked}, the limit is {limits.max_tokens}", param="max_tokens"
        )
    if asked is not None and min_tokens > asked:
        raise InvalidRequest(
            f"min_tokens ({min_tokens}) is greater than max_tokens ({asked})", param="min_tokens"
        )


def _stops(stop: str | list[str] | None, limits: RequestLimits) -> tuple[str, ...]:
    if stop is None:
        return ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > limits.max_stop:
        raise InvalidRequest(
            f"stop holds {len(stops)} strings, the limit is {limits.max_stop}", param="stop"
        )
    for text in stops:
        if not text:
            raise InvalidRequest("a stop string is empty", param="stop", fix="Leave it out.")
        if len(text) > limits.max_stop_chars:
            raise InvalidRequest(
                f"a stop string has {len(text)} characters, the limit is {limits.max_stop_chars}",
                param="stop",
            )
    return stops


def _stop_token_ids(
    ids: list[int] | None, vocab_size: int, limits: RequestLimits
) -> tuple[int, ...]:
    if not ids:
        return ()
    if len(ids) > limits.max_stop:
        raise InvalidRequest(
            f"stop_token_ids holds {len(ids)} ids, the limit is {limits.max_stop}",
            param="stop_token_ids",
        )
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequest(
                f"{token_id} is not a token id; they are below {vocab_size}",
                param="stop_token_ids",
            )
    return tuple(ids)


def _logit_bias(
    bias: dict[str, float] | None, vocab_size: int, limits: RequestLimits
) -> dict[int, float]:
    if not bias:
        return {}
    if len(bias) > limits.max_logit_bias:
        raise InvalidRequest(
            f"logit_bias has {len(bias)} entries, the limit is {limits.max_logit_bias}",
            param="logit_bias",
        )
    checked: dict[int, float] = {}
    for key, value in bias.items():
        # Not int(): it takes blanks, underscores, other scripts' digits and endless input.
        if not (key.isascii() and key.isdigit() and len(key) < 12 and int(key) < vocab_size):
            raise InvalidRequest(
                f"logit_bias: {key[:20]!a} is not a token id; they are below {vocab_size}",
                param="logit_bias",
            )
        checked[int(key)] = value
    return checked


def _or(value: ValueT | None, default: ValueT) -> ValueT:
    return default if value is None else value

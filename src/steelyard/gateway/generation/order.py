"""What was asked, and the engine requests it becomes.

An `Ask` is a validated body of either endpoint; an `Order` adds model, tokens and seeds. Every
choice is an engine request of its own: n choices of p prompts are n·p requests, and the choice
with index prompt·n + i is the i-th of its prompt, as OpenAI numbers them.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from steelyard.contract import GenerateRequest
from steelyard.contract.errors import ContextTooLong, InvalidRequest
from steelyard.gateway.api.generation import GenerationFields
from steelyard.gateway.api.sampling import SamplingPlan, plan_sampling
from steelyard.gateway.config import RequestLimits
from steelyard.gateway.generation.prompts import Prompt
from steelyard.gateway.limits.config import TenantRules
from steelyard.gateway.models import ServedModel

__all__ = ["Ask", "Order", "OrderedChoice", "make_order", "plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, independent of the endpoint it came to."""

    fields: GenerationFields
    prompts: Sequence[Prompt]
    prompt_param: str
    """What the endpoint calls the prompt; errors name it."""
    asked_tokens: int | None
    """`max_tokens`, under whichever name; None when the request has none."""
    default_tokens: int | None
    """Used instead; None means all that fit."""
    logprobs: int | None
    """How many alternatives per token; None for no log-probabilities at all."""
    echo: bool = False


@dataclass(frozen=True, slots=True)
class OrderedChoice:
    """One sequence of the answer."""

    index: int
    request: GenerateRequest
    is_first_of_prompt: bool
    """Prompt tokens are counted once per prompt: at this choice."""
    echo: str
    """Text to put before the completion; empty unless asked for."""


@dataclass(frozen=True, slots=True)
class Order:
    """Everything needed to generate and to answer."""

    ask: Ask
    served: ServedModel
    choices: tuple[OrderedChoice, ...]
    stops: tuple[str, ...]
    response_id: str
    created: int

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts."""
        return sum(len(c.request.prompt_ids) for c in self.choices if c.is_first_of_prompt)

    @property
    def max_tokens(self) -> int:
        """That all choices together may produce."""
        return sum(choice.request.sampling.max_tokens for choice in self.choices)

    @property
    def asked_tokens(self) -> int | None:
        """As `max_tokens`, when the request named a number; None when it left that to us."""
        return None if self.ask.asked_tokens is None else self.max_tokens


def plan(ask: Ask, vocab_size: int, limits: RequestLimits) -> SamplingPlan:
    """Check all that can be checked without the prompt's tokens. Raises `InvalidRequest`."""
    sampling = plan_sampling(
        ask.fields,
        asked_tokens=ask.asked_tokens,
        logprobs=ask.logprobs,
        vocab_size=vocab_size,
        limits=limits,
    )
    sequences = len(ask.prompts) * sampling.choices
    if sequences > limits.max_sequences:
        raise InvalidRequest(
            f"{len(ask.prompts)} prompts with n={sampling.choices} make {sequences} sequences, "
            f"the limit is {limits.max_sequences}",
            param=ask.prompt_param,
        )
    return sampling


def make_order(
    ask: Ask,
    sampling: SamplingPlan,
    prompts: Sequence[tuple[int, ...]],
    *,
    served: ServedModel,
    id_prefix: str,
    cache_salt: str,
    tenant: str,
    rules: TenantRules,
    trace: str | None,
    limits: RequestLimits,
) -> Order:
    """One engine request per choice. Raises `ContextTooLong` when prompt and output cannot fit."""
    response_id = id_prefix + os.urandom(12).hex()
    choices: list[OrderedChoice] = []
    for prompt, ids in zip(ask.prompts, prompts, strict=True):
        max_tokens = _max_tokens(ask, len(ids), _context(served, rules), limits)
        echo = prompt.echo(served.text) if ask.echo else ""
        for choice in range(sampling.choices):
            index = len(choices)
            request = GenerateRequest(
                request_id=f"{response_id}-{index}",
                prompt_ids=ids,
                sampling=sampling.params(max_tokens, choice),
                model=served.name,
                tenant=tenant,
                priority=rules.priority(ask.fields.priority or 0),
                cache_salt=cache_salt,
                trace=trace,
            )
            choices.append(OrderedChoice(index, request, choice == 0, echo))
    return Order(ask, served, tuple(choices), sampling.stops, response_id, int(time.time()))


@dataclass(frozen=True, slots=True)
class _Context:
    """How long a sequence may be, and who says so."""

    tokens: int
    whose: str


def _context(served: ServedModel, rules: TenantRules) -> _Context:
    tokens = served.engine.info.context_tokens
    if rules.context_tokens is not None and rules.context_tokens < tokens:
        return _Context(rules.context_tokens, "this tenant's")
    return _Context(tokens, "this model's")


def _max_tokens(ask: Ask, prompt_tokens: int, context: _Context, limits: RequestLimits) -> int:
    if prompt_tokens == 0:
        raise InvalidRequest("the prompt has no tokens", param=ask.prompt_param)
    room = context.tokens - prompt_tokens
    asked = ask.asked_tokens
    if room < 1 or (asked is not None and asked > room):
        wanted = f" and max_tokens asks for {asked} more" if asked is not None else ""
        raise ContextTooLong(
            f"{context.whose} context holds {context.tokens} tokens, but the prompt has "
            f"{prompt_tokens}{wanted}",
            param=ask.prompt_param,
            fix="Shorten the prompt or lower max_tokens.",
        )
    if asked is not None:
        return asked
    bounds = (room, ask.default_tokens, limits.max_tokens)
    return min(bound for bound in bounds if bound is not None)

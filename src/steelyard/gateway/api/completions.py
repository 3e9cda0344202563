"""`/v1/completions`: the request's schema.

A prompt may be text or token ids, one or several. What the answer looks like is in
`generation.dialects`.
"""

from typing import Annotated

import msgspec

from steelyard.contract.errors import InvalidRequest, UnsupportedFeature
from steelyard.gateway.api.generation import GenerationFields

__all__ = ["DEFAULT_MAX_TOKENS", "CompletionRequest", "plain_prompts"]

DEFAULT_MAX_TOKENS = 16
"""What OpenAI documents for this endpoint."""


class CompletionRequest(GenerationFields, kw_only=True):
    """The body of a text completion."""

    prompt: str | list[str | int | list[int]]
    best_of: Annotated[int, msgspec.Meta(ge=1)] | None = None
    echo: bool | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0)] | None = None
    add_special_tokens: bool | None = None


def plain_prompts(request: CompletionRequest) -> list[str | tuple[int, ...]]:
    """The prompts, each as text or token ids; at least one.

    Ids are not yet compared with the vocabulary. Raises `InvalidRequest` for a mixture and for
    no prompt at all.
    """
    if request.best_of is not None and request.best_of > (request.n or 1):
        raise UnsupportedFeature(
            "best_of greater than n is not supported by this server",
            param="best_of",
            fix="Ask for n choices and choose among them.",
        )
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise InvalidRequest("prompt is empty", param="prompt")
    if all(type(item) is int for item in prompt):
        return [tuple(prompt)]  # type: ignore[arg-type]  # all are int, as just checked
    prompts: list[str | tuple[int, ...]] = []
    kind = type(prompt[0])
    for at, item in enumerate(prompt):
        if type(item) is not kind or isinstance(item, int):
            raise InvalidRequest(
                "prompt mixes text, token ids and lists of them",
                param=f"prompt[{at}]",
                fix="Send one string, a list of strings, a list of ids or a list of such lists.",
            )
        prompts.append(item if isinstance(item, str) else tuple(item))
    return prompts

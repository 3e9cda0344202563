"""What is asked of `/v1/completions`: a request of the contract as a JSON object."""

from typing import Any

from steelyard.contract import GenerateRequest, SamplingParams

__all__ = ["completion_body", "continuation_seed"]


def completion_body(
    request: GenerateRequest, *, model: str, prompt: str | list[int], wants_ids: bool
) -> dict[str, Any]:
    """All that shapes the answer is said, so that no default of the server's counts.

    A continued request asks for what is left, after its prompt and what was emitted.
    """
    sampling = request.sampling
    emitted = len(request.emitted_ids)
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": sampling.max_tokens - emitted,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": continuation_seed(sampling.seed, emitted),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
    }
    body |= _options(sampling, emitted)
    if wants_ids:
        body["return_token_ids"] = True
        if sampling.logprobs is not None:
            body |= {"logprobs": sampling.logprobs, "return_tokens_as_token_ids": True}
    if request.cache_salt:
        body["cache_salt"] = request.cache_salt
    return body


def continuation_seed(seed: int, emitted: int) -> int:
    """These servers draw from a generator that starts anew with a request: a continued one must
    not draw the numbers again that its beginning was drawn with. Zero `emitted` changes nothing.
    """
    moved = (seed + emitted * _ODD) & (2**64 - 1) if emitted else seed
    return moved - 2**64 if moved >= 2**63 else moved


_ODD = 0x9E3779B97F4A7C15
"""2⁶⁴ over the golden ratio: its multiples are far from each other."""


def _options(sampling: SamplingParams, emitted: int) -> dict[str, Any]:
    """What is said only when it is not as usual: not every server knows these."""
    options: dict[str, Any] = {}
    if sampling.logit_bias:
        options["logit_bias"] = {str(key): value for key, value in sampling.logit_bias.items()}
    if sampling.min_tokens > emitted:
        options["min_tokens"] = sampling.min_tokens - emitted
    if sampling.stop_token_ids:
        options["stop_token_ids"] = list(sampling.stop_token_ids)
    if sampling.ignore_eos:
        options["ignore_eos"] = True
    return options

"""The parameters that chat and text completions share, and what they become.

Ranges that no setting changes are in the types; limits of this server are checked by `sampling`.
`null` means the same as leaving a parameter out, everywhere.
"""

from typing import Annotated

import msgspec

__all__ = ["GenerationFields", "StreamOptions"]

_Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`stream_options`."""

    include_usage: bool | None = None
    """Send the usage as one more event before `[DONE]`."""
    include_obfuscation: bool | None = None
    """Accepted and ignored: OpenAI's padding against traffic analysis."""
    continuous_usage_stats: bool | None = None
    """vLLM's; refused when true."""


class GenerationFields(msgspec.Struct, kw_only=True):
    """What both endpoints understand. Names are OpenAI's and vLLM's."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: _Count | None = None
    n: _Count | None = None
    seed: _Int64 | None = None
    stop: str | list[str] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    logit_bias: dict[str, Annotated[float, msgspec.Meta(ge=-100, le=100)]] | None = None
    # vLLM's extras
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31)] | None = None
    min_p: _Share | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=100)] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, msgspec.Meta(ge=0, le=2**31)] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    """vLLM's; refused when true."""
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    cache_salt: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    request_id: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    """vLLM's; ignored: the header `x-request-id` names a request."""

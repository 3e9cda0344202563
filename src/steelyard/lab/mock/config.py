"""Everything the mock can be told, one field per key; flags and the YAML file use these names.

Only the words and their ranges. `config_file` reads them, `bottlenecks` presets some.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from steelyard.lab.mock.distributions import Distribution, parse_distribution

__all__ = ["BottleneckName", "MockConfig"]

BottleneckName = Literal["queue", "prefill", "decode", "kv", "client", "gateway"]

_Share = Annotated[float, Meta(ge=0, le=1)]
_Count = Annotated[int, Meta(ge=1)]
_Amount = Annotated[float, Meta(ge=0)]
_Positive = Annotated[float, Meta(gt=0)]
_Whole = Annotated[int, Meta(ge=0)]

_TTFT_MS = parse_distribution(200)
_ITL_MS = parse_distribution(20)
_OUTPUT_TOKENS = parse_distribution(64)


def _help(text: str) -> Meta:
    return Meta(description=text)


class MockConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the mock behaves. Times of tokens follow from these values and the seed alone."""

    host: Annotated[str, _help("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="0 takes a free port.")] = 8100
    model: Annotated[str, _help("Name of the model; requests may name any.")] = "mock"
    seed: Annotated[_Whole, _help("Same seed and order of arrival: same draws and faults.")] = 0
    truth: Annotated[
        str | None, _help("File that gets one JSON line per request; None writes none.")
    ] = None
    spin_us: Annotated[
        _Whole,
        _help("Wake this early and spin until a token is due; costs CPU time. 0 never spins."),
    ] = 0
    realtime: Annotated[
        bool, _help("Ask the kernel for real-time priority; without the right to it, run as usual.")
    ] = True

    ttft_ms: Annotated[Distribution, _help("From the start of service to the first token.")] = (
        _TTFT_MS
    )
    itl_ms: Annotated[Distribution, _help("From one token to the next.")] = _ITL_MS
    drift_cv: Annotated[
        _Amount,
        _help("Slow common noise on all latencies: its coefficient of variation. 0 is none."),
    ] = 0.0
    drift_s: Annotated[
        float, Meta(gt=0, description="Time over which that noise forgets itself.")
    ] = 5.0

    bottleneck: Annotated[
        BottleneckName | None,
        _help("Preset of the keys below that makes one resource the limit; None presets nothing."),
    ] = None
    slots: Annotated[
        _Count | None, _help("Requests served at once, others wait in line. None: no limit.")
    ] = None
    queue_limit: Annotated[
        _Whole | None, _help("Requests that may wait; more get 429. None: no limit.")
    ] = None
    prefill_tokens_per_s: Annotated[
        _Positive | None,
        _help("One prompt after the other at this rate, before the TTFT. None: takes no time."),
    ] = None
    itl_us_per_running: Annotated[
        _Amount, _help("Added to each gap for every other request being served.")
    ] = 0.0
    kv_tokens: Annotated[
        _Count | None,
        _help("Tokens that fit into KV memory; beyond, the youngest is preempted. None: all."),
    ] = None
    gateway_us_per_event: Annotated[
        _Amount, _help("A gateway in front forwards one event after the other, each this long.")
    ] = 0.0
    context_tokens: Annotated[_Count, _help("Prompt and output; more gets 400.")] = 131_072

    output_tokens: Annotated[
        Distribution, _help("Length of an answer that nobody cuts; max_tokens cuts it.")
    ] = _OUTPUT_TOKENS
    reasoning_tokens: Annotated[
        _Whole, _help("First tokens of a chat answer that are sent as reasoning.")
    ] = 0
    reasoning_field: Annotated[
        Literal["reasoning_content", "reasoning"], _help("Name of their field in the delta.")
    ] = "reasoning_content"
    client_tokens_per_token: Annotated[
        float,
        Meta(gt=0, le=16, description="Words, which is what a client counts, per token of ours."),
    ] = 1.0

    bundle_tokens: Annotated[_Count, _help("Tokens per event of a stream.")] = 1
    role_chunk_ms: Annotated[
        _Amount | None,
        _help("When the event that carries the role alone comes. None: there is none."),
    ] = 0.0
    empty_chunk_share: Annotated[
        _Share, _help("Events without text sent before an event, as a probability.")
    ] = 0.0
    comment_ms: Annotated[
        _Positive | None,
        _help("A comment each time this passes before the first token. None: no comments."),
    ] = None
    usage: Annotated[
        Literal["asked", "always", "never"],
        _help("When the stream's last chunk reports usage; complete answers do unless never."),
    ] = "asked"
    metrics: Annotated[
        Literal["steelyard", "vllm", "both"], _help("Whose names /metrics uses.")
    ] = "both"

    fault_429: Annotated[_Share, _help("Share of requests refused with 429.")] = 0.0
    retry_after_s: Annotated[_Amount, _help("Retry-After of every 429.")] = 1.0
    fault_500: Annotated[_Share, _help("Share of requests answered with 500.")] = 0.0
    fault_reset: Annotated[
        _Share, _help("Share of streams whose connection is reset after fault_tokens.")
    ] = 0.0
    fault_truncate: Annotated[
        _Share, _help("Share of streams that end without finish reason and [DONE].")
    ] = 0.0
    fault_stall: Annotated[
        _Share, _help("Share of streams that pause for stall_s after fault_tokens.")
    ] = 0.0
    stall_s: Annotated[_Amount, _help("Length of such a pause.")] = 10.0
    fault_malformed: Annotated[
        _Share, _help("Share of answers with JSON that is cut in the middle.")
    ] = 0.0
    fault_usage: Annotated[
        _Share, _help("Share of answers whose usage counts one output token too many.")
    ] = 0.0
    fault_tokens: Annotated[
        _Whole, _help("Tokens sent before a reset, stall, malformed or truncated stream.")
    ] = 3

"""What will happen to a request, decided when it arrives: length, first token's time, fault.

Pure: a request, its number and the seed give its plan. Gaps between tokens are drawn from the
plan's generator as they are needed (`serving`), so that long answers cost nothing at arrival.
"""

import random
from dataclasses import dataclass
from typing import Literal

from steelyard.lab.mock.answers import Refusal
from steelyard.lab.mock.config import MockConfig
from steelyard.lab.mock.requests import MockRequest
from steelyard.lab.mock.text import MockText, TokenSequence
from steelyard.lab.mock.timers import NS_PER_MS, NS_PER_S

__all__ = ["Fault", "Plan", "Planner"]

Fault = Literal["429", "500", "reset", "truncate", "stall", "malformed", "usage"]

_FAULTS: tuple[Fault, ...] = ("429", "500", "reset", "truncate", "stall", "malformed", "usage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The future of one request."""

    index: int
    """Number of the request, from 0, in order of arrival."""
    prompt_tokens: int
    tokens: TokenSequence
    output_tokens: int
    reasoning_tokens: int
    """The first ones of `output_tokens`."""
    finish_reason: Literal["stop", "length"]
    ttft_ns: int
    """From the start of service (and the end of prefill) to the first token."""
    fault: Fault | None
    fault_tokens: int
    """Tokens sent before a fault that happens in the middle."""
    stall_ns: int
    """Pause after `fault_tokens`; 0 when the fault is none or another one."""
    generator: random.Random
    """Draws the gaps, one after the other."""
    cut_pieces: tuple[bytes, ...] | None
    """Text of each token when a stop string cuts the answer; None when nothing is cut."""


class Planner:
    """Makes the plans of one server, counting the requests."""

    def __init__(self, config: MockConfig, text: MockText) -> None:
        self._config = config
        self._text = text
        self._planned = 0

    def plan(self, request: MockRequest) -> Plan:
        """The next request's plan. Raises `Refusal` when it cannot fit into the context."""
        config = self._config
        index = self._planned
        self._planned += 1
        generator = random.Random(config.seed << 40 | index)  # noqa: S311 not for secrets
        # Always the same draws in the same order, so that one key leaves the others' draws alone.
        fault = _draw_fault(config, generator)
        length = max(round(config.output_tokens.draw(generator)), 1)
        ttft_ms = config.ttft_ms.draw(generator)
        output_tokens, finish_reason = _output(request, length)
        _require_room(config, request.prompt_tokens, output_tokens)
        tokens = TokenSequence(request.prompt, config.seed + request.seed)
        is_chat = request.endpoint == "chat"
        reasoning_tokens = min(config.reasoning_tokens, output_tokens) if is_chat else 0
        pieces = None
        if request.stop:
            pieces = self._cut(tokens, output_tokens, reasoning_tokens, request.stop)
        if pieces is not None:
            output_tokens, finish_reason = len(pieces), "stop"
        return Plan(
            index=index,
            prompt_tokens=request.prompt_tokens,
            tokens=tokens,
            output_tokens=output_tokens,
            reasoning_tokens=reasoning_tokens,
            finish_reason=finish_reason,
            ttft_ns=round(ttft_ms * NS_PER_MS),
            fault=fault,
            fault_tokens=min(config.fault_tokens, output_tokens - 1),
            stall_ns=round(config.stall_s * NS_PER_S) if fault == "stall" else 0,
            generator=generator,
            cut_pieces=pieces,
        )

    def _cut(
        self, tokens: TokenSequence, count: int, reasoning: int, stop: tuple[str, ...]
    ) -> tuple[bytes, ...] | None:
        """Pieces up to the first stop string, which is left out; None when none occurs.

        The token that completes the stop string still counts, as it was generated.
        """
        pieces = [self._text.piece(tokens[i], i) for i in range(reasoning)]
        text = ""
        ends = []
        for position in range(count - reasoning):
            text += self._text.piece(tokens[reasoning + position], position).decode()
            ends.append(len(text))
            found = [at for at in (text.find(needle) for needle in stop) if at >= 0]
            if found:
                starts = [0, *ends]
                kept = text[: min(found)].encode()
                return (*pieces, *(kept[a:b] for a, b in zip(starts, ends, strict=False)))
        return None


def _draw_fault(config: MockConfig, generator: random.Random) -> Fault | None:
    left = generator.random()
    for fault in _FAULTS:
        left -= getattr(config, f"fault_{fault}")
        if left < 0:
            return fault
    return None


def _output(request: MockRequest, length: int) -> tuple[int, Literal["stop", "length"]]:
    limit = request.max_tokens
    if limit is not None and (request.ignore_eos or limit < length):
        return limit, "length"
    return length, "stop"


def _require_room(config: MockConfig, prompt_tokens: int, output_tokens: int) -> None:
    if prompt_tokens + output_tokens <= config.context_tokens:
        return
    raise Refusal(
        400,
        f"The prompt's {prompt_tokens} tokens and {output_tokens} of output exceed the context of "
        f"{config.context_tokens} tokens.",
        code="context_length_exceeded",
    )

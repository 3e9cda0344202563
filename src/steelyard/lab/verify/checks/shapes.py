"""What every whole answer must have, whichever endpoint it comes from."""

from steelyard.lab.verify.answers import Answer
from steelyard.lab.verify.probe import Probe

__all__ = ["FINISH_REASONS", "claim_shape"]

FINISH_REASONS = frozenset({"stop", "length", "content_filter", "tool_calls", "function_call"})
_CREATED_RANGE = range(1_000_000_000, 100_000_000_000)
"""Seconds since 1970; milliseconds are far above."""


def claim_shape(probe: Probe, answer: Answer) -> None:
    """Claim ids, times, names, one finished choice and a usage that adds up."""
    probe.claim(bool(answer.id), "id is empty", answer)
    kind = answer.endpoint.kind
    probe.claim(answer.object == kind, f"object is {answer.object!r}, not {kind!r}", answer)
    is_time = answer.created in _CREATED_RANGE
    probe.claim(is_time, f"created is {answer.created}, no time in seconds since 1970", answer)
    asked = probe.offer.model
    is_named = answer.model.startswith(asked) or asked.startswith(answer.model or "?")
    probe.claim(is_named, f"model is {answer.model!r}, {asked!r} was asked", answer)
    indices = [choice.index for choice in answer.choices]
    probe.claim(indices == [0], f"one choice was asked for, indices {indices} came", answer)
    reason = answer.finish_reason
    probe.claim(reason in FINISH_REASONS, f"finish_reason is {reason!r}", answer)
    probe.claim(answer.usage is not None, "usage is missing", answer)

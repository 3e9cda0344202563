"""Checks of streams: their form, and that they say what a whole answer says."""

from steelyard.lab.verify.answers import StreamedAnswer
from steelyard.lab.verify.check import check, check_both
from steelyard.lab.verify.checks.shapes import FINISH_REASONS
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.material import COUNTING, STORIES
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_LEAST_CHARS = 48
_LEAST_DURATION_S = 0.3
"""Of a stream, for its timing to mean something."""
_LEAST_SPREAD = 0.15
"""Share of its duration over which a stream's text must be spread."""


@check_both(
    "streams.form",
    "A stream is well-formed: content type, events, [DONE] at the end and nothing after it.",
    "Look at the raw bytes with curl -N.",
)
async def _form(probe: Probe, endpoint: Endpoint) -> None:
    answer = await probe.stream(endpoint, COUNTING)
    kind = answer.exchange.content_type
    probe.claim(kind == "text/event-stream", f"the content type is {kind!r}", answer)
    probe.claim(not answer.faults, "; ".join(answer.faults), answer)
    probe.claim(answer.ends_with_done, "the stream ends without [DONE]", answer)
    probe.claim(not answer.after_done, f"after [DONE] came {answer.after_done}", answer)


@check_both(
    "streams.chunks",
    "All chunks of a stream carry the same id, object, model and time.",
    "Compare the chunks with OpenAI's reference of the chunk object.",
)
async def _chunks(probe: Probe, endpoint: Endpoint) -> None:
    answer = await probe.stream(endpoint, COUNTING)
    kind = endpoint.chunk_kind
    for name in ("id", "object", "model", "created"):
        values = {str(getattr(chunk.body, name)) for chunk in answer.chunks}
        probe.claim(len(values) == 1, f"{name} changes: {sorted(values)[:4]}", answer)
    probe.claim(answer.object == kind, f"object is {answer.object!r}, not {kind!r}", answer)
    probe.claim(bool(answer.id), "id is empty", answer)


@check(
    "streams.role",
    "A chat stream begins with the assistant's role, and says it once.",
    "The first chunk's delta is {role: assistant, …}.",
)
async def _role(probe: Probe) -> None:
    answer = await probe.stream(Endpoint.CHAT, COUNTING)
    deltas = [c.delta for chunk in answer.chunks for c in chunk.body.choices if hasattr(c, "delta")]
    roles = [delta.role for delta in deltas if delta is not None]
    first = roles[0] if roles else None
    probe.claim(first == "assistant", f"the first chunk's role is {first!r}", answer)
    others = {role for role in roles if role is not None} - {"assistant"}
    probe.claim(not others, f"chunks have the roles {sorted(others)}", answer)


@check_both(
    "streams.end",
    "The finish reason comes once, on the last chunk that has text.",
    "Clients stop reading a choice at its finish reason.",
)
async def _end(probe: Probe, endpoint: Endpoint) -> None:
    answer = await probe.stream(endpoint, COUNTING)
    reasons = [c.finish_reason for chunk in answer.chunks for c in chunk.body.choices]
    given = [reason for reason in reasons if reason is not None]
    probe.claim(len(given) == 1, f"finish reasons {given} were given", answer)
    strange = set(given) - FINISH_REASONS
    probe.claim(not strange, f"finish_reason is {sorted(strange)}", answer)
    ended = False
    for chunk in answer.chunks:
        probe.claim(not (ended and chunk.says), f"{chunk.says!r} came after the end", answer)
        ended = ended or any(c.finish_reason is not None for c in chunk.body.choices)


@check_both(
    "streams.equal-whole",
    "A streamed answer is the whole answer: text, tokens, finish reason.",
    "Is text lost or repeated at chunk borders, or held back and forgotten at the end?",
)
async def _equal_whole(probe: Probe, endpoint: Endpoint) -> None:
    for subject in (COUNTING, STORIES[0]):
        wishes = {"max_tokens": 32, **probe.logprobs(endpoint)}
        whole = await probe.ask(endpoint, subject, **wishes)
        streamed = await probe.stream(endpoint, subject, **wishes)
        if not probe.agree(whole, streamed, "the whole and the streamed answer"):
            continue
        if whole.text == streamed.text:
            reasons = whole.finish_reason, streamed.finish_reason
            is_same = reasons[0] == reasons[1]
            probe.claim(is_same, f"finish reasons are {reasons}", whole, streamed)
        plain = await probe.stream(endpoint, subject, max_tokens=32)
        said = "".join(chunk.says for chunk in plain.chunks)
        is_same = said == streamed.text or not probe.logprobs(endpoint)
        probe.claim(is_same, f"without logprobs it says {said[:60]!r}", streamed, plain)


@check_both(
    "streams.usage",
    "include_usage sends one more chunk, with the usage and no choices, just before [DONE].",
    "Without it, no chunk may lack choices: clients read choices[0].",
)
async def _usage(probe: Probe, endpoint: Endpoint) -> None:
    asked = await probe.stream(endpoint, COUNTING, stream_options={"include_usage": True})
    last = asked.chunks[-1].body
    is_there = last.usage is not None and not last.choices
    probe.claim(is_there, "the last chunk is no usage chunk", asked)
    early = [chunk for chunk in asked.chunks[:-1] if not chunk.body.choices]
    probe.claim(not early, f"{len(early)} more chunks have no choices", asked)
    plain = await probe.stream(endpoint, COUNTING)
    bare = [chunk for chunk in plain.chunks if not chunk.body.choices]
    probe.claim(not bare, f"without include_usage, {len(bare)} chunks have no choices", plain)


@check(
    "streams.choices",
    "Several streamed choices keep their texts apart, and each ends once.",
    "Every chunk's choices[].index says whose text it is.",
)
async def _choices(probe: Probe) -> None:
    endpoint = probe.main
    wishes = {"n": 2, "seed": 11, "temperature": 1.0, "max_tokens": 24}
    streamed = await probe.stream(endpoint, STORIES[1], **wishes)
    indices = [choice.index for choice in streamed.choices]
    if not probe.claim(indices == [0, 1], f"choices {indices} came, not [0, 1]", streamed):
        return
    for index in indices:
        ends = _finish_reasons(streamed, index)
        probe.claim(len(ends) == 1, f"choice {index} has the finish reasons {ends}", streamed)
    texts = {choice.text for choice in streamed.choices}
    probe.claim(len(texts) == 2, "both choices say the same at temperature 1", streamed)


@check(
    "streams.as-made",
    "Tokens are sent as they are made, not at the end.",
    "Look for a buffering proxy: X-Accel-Buffering, gzip, response caching.",
)
async def _as_made(probe: Probe) -> None:
    answer = await probe.stream(probe.main, COUNTING, max_tokens=64)
    times = [chunk.at_s for chunk in answer.chunks if chunk.says]
    duration_s = answer.exchange.elapsed_s
    if answer.text and len(answer.text) >= _LEAST_CHARS and len(times) == 1:
        probe.fail("the whole text came in one chunk", answer)
    if len(times) < 2 or duration_s < _LEAST_DURATION_S:
        probe.skip(f"{len(times)} chunks in {duration_s:.2f} s are too few to tell")
    spread = (times[-1] - times[0]) / duration_s
    problem = f"all text came within {spread:.0%} of the stream's {duration_s:.2f} s"
    probe.claim(spread >= _LEAST_SPREAD, problem, answer)


def _finish_reasons(streamed: StreamedAnswer, index: int) -> list[str]:
    return [
        choice.finish_reason
        for chunk in streamed.chunks
        for choice in chunk.body.choices
        if choice.index == index and choice.finish_reason is not None
    ]


CHECKS = (
    *_form,
    *_chunks,
    _role,
    *_end,
    *_equal_whole,
    *_usage,
    _choices,
    _as_made,
)

"""From the events of one answer to a `Stream`: decoded after the clock has stopped."""

import msgspec
from benchmarks.engines.jobs import Stream
from benchmarks.engines.sse import StreamedAnswer

__all__ = ["read_answer"]

_DONE = b"[DONE]"


class _Choice(msgspec.Struct):
    text: str = ""
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: object = None


def read_answer(answer: StreamedAnswer, worker: int, sent_ns: int, max_tokens: int) -> Stream:
    """What the answer says, and in `error` whatever makes it no full answer to the ask."""
    stream = Stream(worker=worker, sent_ns=sent_ns, end_ns=answer.end_ns, token_ns=[])
    if answer.status != 200:
        stream.error = f"status {answer.status}: {answer.body[:300].decode(errors='replace')}"
        return stream
    finish_reason = None
    parts: list[str] = []
    for stamp_ns, data in answer.events:
        if data == _DONE:
            continue
        stream.events += 1
        event = msgspec.json.decode(data, type=_Event)
        if event.error is not None:
            stream.error = f"error event: {event.error!s:.300}"
            return stream
        if event.usage is not None:
            _note_usage(stream, event.usage)
        if event.choices:
            choice = event.choices[0]
            finish_reason = choice.finish_reason or finish_reason
            if choice.text:
                stream.token_ns.append(stamp_ns)
                parts.append(choice.text)
    stream.text = "".join(parts)
    stream.error = _fault(stream, finish_reason, max_tokens, has_ended=_has_done(answer))
    return stream


def _note_usage(stream: Stream, usage: _Usage) -> None:
    stream.prompt_tokens = usage.prompt_tokens
    stream.completion_tokens = usage.completion_tokens
    if usage.prompt_tokens_details is not None:
        stream.cached_tokens = usage.prompt_tokens_details.cached_tokens


def _has_done(answer: StreamedAnswer) -> bool:
    return bool(answer.events) and answer.events[-1][1] == _DONE


def _fault(stream: Stream, finish_reason: str | None, max_tokens: int, *, has_ended: bool) -> str:
    if not has_ended:
        return "the stream ended without [DONE]"
    if stream.completion_tokens != max_tokens:
        return f"{stream.completion_tokens} tokens instead of {max_tokens} ({finish_reason})"
    if not stream.token_ns and max_tokens > 1:
        return "no text"
    return ""

"""The faults the proxy can plant, each the way real servers have shown it.

A fault changes the request on its way up, or the answer on its way down: a complete JSON body, one
event of a stream, or the head. Everything else passes unchanged. Faults keep no state but the
`Passage` of the request they are in; several may be planted together, in the order given.
"""

import itertools
import random
from collections.abc import Iterable
from typing import Any, ClassVar

from steelyard.contract.errors import SettingsError

__all__ = ["FAULTS", "AnswerHead", "Fault", "Passage", "make_faults"]

Json = dict[str, Any]


class Passage:
    """One request on its way; faults may remember things here until its answer is complete."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.text_events = 0
        """Events with text so far, the present one included."""
        self.held_back: Json | None = None
        """An event that waits for the next one; None when none does."""


class AnswerHead:
    """Status and content type of an answer; faults may change both."""

    def __init__(self, status: int, content_type: str | None) -> None:
        self.status = status
        self.content_type = content_type
        """None sends no such header."""


class Fault:
    """Changes nothing: the ground on which each fault changes one thing."""

    name: ClassVar[str]
    description: ClassVar[str]

    def on_request(self, body: Json, passage: Passage) -> Json:
        """The body to send upstream."""
        return body

    def on_head(self, head: AnswerHead, passage: Passage) -> None:
        """May change the head."""

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        """The complete answer to send down, errors included."""
        return body

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        """The events to send down instead of this one."""
        return [event]

    def keeps_done(self) -> bool:
        """Whether the stream's `[DONE]` passes."""
        return True


class WrongUsage(Fault):
    name = "wrong_usage"
    description = "usage counts one output token too many"

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        usage = body.get("usage")
        if isinstance(usage, dict) and "completion_tokens" in usage:
            usage["completion_tokens"] += 1
            usage["total_tokens"] += 1
        return body

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        return [self.on_answer(event, _OK, passage)]


class DroppedLastToken(Fault):
    name = "dropped_last_token"
    description = "the last event with text of a stream is lost"

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        if _texts(event) and not _finish_reasons(event):
            ready = [passage.held_back] if passage.held_back is not None else []
            passage.held_back = event
            return ready
        if not _finish_reasons(event):
            return [event]
        held, passage.held_back = passage.held_back, None
        if not _texts(event):
            return [event]  # without the one held back, which was the last with text
        for choice in _choices(event):
            _set_text(choice, "")
        return [held, event] if held is not None else [event]


class DuplicatedChunk(Fault):
    name = "duplicated_chunk"
    description = "the second event with text of a stream is sent twice"

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        is_second = bool(_texts(event)) and passage.text_events == 2
        return [event, event] if is_second else [event]


class MissingDone(Fault):
    name = "missing_done"
    description = "streams end without [DONE]"

    def keeps_done(self) -> bool:
        return False


class WrongFinishReason(Fault):
    name = "wrong_finish_reason"
    description = "length and stop are exchanged"
    _SWAPPED: ClassVar[Json] = {"length": "stop", "stop": "length"}

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        for choice in _choices(body):
            reason = choice.get("finish_reason")
            if reason in self._SWAPPED:
                choice["finish_reason"] = self._SWAPPED[reason]
        return body

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        return [self.on_answer(event, _OK, passage)]


class IgnoredStop(Fault):
    name = "ignored_stop"
    description = "stop strings and stop token ids have no effect"

    def on_request(self, body: Json, passage: Passage) -> Json:
        return _without(body, "stop", "stop_token_ids")


class IgnoredMaxTokens(Fault):
    name = "ignored_max_tokens"
    description = "answers may be twice as long as max_tokens, and five tokens more"

    def on_request(self, body: Json, passage: Passage) -> Json:
        for key in ("max_tokens", "max_completion_tokens"):
            if type(body.get(key)) is int and body[key] > 0:
                body[key] = 2 * body[key] + 5
        return body


class IgnoredSeed(Fault):
    name = "ignored_seed"
    description = "every request is drawn with a seed of its own"
    _seeds = itertools.count(random.SystemRandom().getrandbits(30))

    def on_request(self, body: Json, passage: Passage) -> Json:
        return {**body, "seed": next(self._seeds)} if type(body.get("seed")) is int else body


class StreamTextDiffers(Fault):
    name = "stream_text_differs"
    description = "the first text of a stream loses its first character"

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        if passage.text_events == 1:
            for choice in _choices(event):
                _set_text(choice, _text(choice)[1:])
        return [event]


class WrongError(Fault):
    name = "wrong_error"
    description = "refusals become status 500 with a body that is not OpenAI's error object"

    def on_head(self, head: AnswerHead, passage: Passage) -> None:
        if 400 <= head.status < 500:
            head.status = 500

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        error = body.get("error")
        return {"detail": error.get("message", "")} if isinstance(error, dict) else body


class WrongModelName(Fault):
    name = "wrong_model_name"
    description = "answers name another model than the one that was asked"

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        return {**body, "model": "another-model"} if "model" in body else body

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        return [self.on_answer(event, _OK, passage)]


class WrongLogprobs(Fault):
    name = "wrong_logprobs"
    description = "lists of logprobs are one entry short, alternatives are missing"

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        for choice in _choices(body):
            if isinstance(choice.get("logprobs"), dict):
                choice["logprobs"] = _shortened(choice["logprobs"])
        return body

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        return [self.on_answer(event, _OK, passage)]


class TruncatedContext(Fault):
    name = "truncated_context"
    description = "prompts beyond 2,000 characters or 512 token ids silently lose their beginning"
    _CHARACTERS = 2000
    _TOKENS = 512

    def on_request(self, body: Json, passage: Passage) -> Json:
        if "prompt" in body:
            body["prompt"] = self._cut(body["prompt"])
        for message in body.get("messages") or ():
            if isinstance(message, dict) and isinstance(message.get("content"), str):
                message["content"] = self._cut(message["content"])
        return body

    def _cut(self, prompt: Any) -> Any:
        if isinstance(prompt, str):
            return prompt[-self._CHARACTERS :]
        if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
            return prompt[-self._TOKENS :]
        return [self._cut(one) for one in prompt] if isinstance(prompt, list) else prompt


class MissingContentType(Fault):
    name = "missing_content_type"
    description = "answers have no content-type"

    def on_head(self, head: AnswerHead, passage: Passage) -> None:
        head.content_type = None


class IgnoredN(Fault):
    name = "ignored_n"
    description = "one answer, however many were asked for"

    def on_request(self, body: Json, passage: Passage) -> Json:
        return _without(body, "n")


_CLASSES: tuple[type[Fault], ...] = (
    WrongUsage,
    DroppedLastToken,
    DuplicatedChunk,
    MissingDone,
    WrongFinishReason,
    IgnoredStop,
    IgnoredMaxTokens,
    IgnoredSeed,
    StreamTextDiffers,
    WrongError,
    WrongModelName,
    WrongLogprobs,
    TruncatedContext,
    MissingContentType,
    IgnoredN,
)

FAULTS: dict[str, type[Fault]] = {fault.name: fault for fault in _CLASSES}
"""Every fault by name."""


def make_faults(names: Iterable[str]) -> list[Fault]:
    """Faults by name. Raises `SettingsError` with the names there are."""
    faults = []
    for name in names:
        if name not in FAULTS:
            raise SettingsError(
                f"{name!r} is no fault", param="plant", fix=f"choose from {', '.join(FAULTS)}"
            )
        faults.append(FAULTS[name]())
    return faults


_OK = AnswerHead(200, None)
"""Stands in where an event has no head of its own."""


def _choices(body: Json) -> list[Json]:
    choices = body.get("choices")
    return [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []


def _text(choice: Json) -> str:
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def _set_text(choice: Json, text: str) -> None:
    delta = choice.get("delta")
    if isinstance(delta, dict):
        if "content" in delta:
            delta["content"] = text
    elif "text" in choice:
        choice["text"] = text


def _texts(event: Json) -> list[str]:
    return [text for text in map(_text, _choices(event)) if text]


def _finish_reasons(event: Json) -> list[str]:
    reasons = [choice.get("finish_reason") for choice in _choices(event)]
    return [reason for reason in reasons if reason]


def _shortened(logprobs: Json) -> Json:
    """Chat's `content` and completions' parallel lists, each one entry short."""
    short = {k: v[:-1] if isinstance(v, list) else v for k, v in logprobs.items()}
    for entry in short.get("content") or ():
        if isinstance(entry, dict):
            entry["top_logprobs"] = []
    return short


def _without(body: Json, *keys: str) -> Json:
    return {key: value for key, value in body.items() if key not in keys}

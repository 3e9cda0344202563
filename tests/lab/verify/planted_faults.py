"""Faults of API behaviour beyond those the proxy ships with, each as some server has shown it.

`FOUND_BY` says which checks must find each one.
"""

import itertools
from typing import Any

from steelyard.lab.mock.proxy.faults import AnswerHead, Fault, Passage

__all__ = ["FOUND_BY"]

Json = dict[str, Any]


def choices(body: Json) -> list[Json]:
    return [c for c in body.get("choices") or () if isinstance(c, dict)]


class OnBoth(Fault):
    """A fault of whole answers and of events alike."""

    def change(self, body: Json) -> None:
        raise NotImplementedError

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        self.change(body)
        return body

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        self.change(event)
        return [event]


class LostSystemPrompt(Fault):
    def on_request(self, body: Json, passage: Passage) -> Json:
        messages = body.get("messages")
        if isinstance(messages, list) and len(messages) > 1:
            kept = [m for m in messages if m.get("role") != "system"]
            return {**body, "messages": kept}
        return body


class LostHistory(Fault):
    def on_request(self, body: Json, passage: Passage) -> Json:
        messages = body.get("messages")
        return {**body, "messages": messages[-1:]} if isinstance(messages, list) else body


class DefaultTemperature(Fault):
    """temperature 0 is taken for «not given», as `if temperature:` does."""

    def on_request(self, body: Json, passage: Passage) -> Json:
        if body.get("temperature") == 0 and type(body["temperature"]) is int:
            return {key: value for key, value in body.items() if key != "temperature"}
        return body


class CrossTalk(Fault):
    """Every third answer is the one given before."""

    def __init__(self) -> None:
        self._count = itertools.count(1)
        self._before: list[Json] | None = None

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        if not choices(body):
            return body
        before, self._before = self._before, body["choices"]
        if before is not None and next(self._count) % 3 == 0:
            return {**body, "choices": before}
        return body


class ShiftedLogprobs(OnBoth):
    """Values are those of the position before."""

    def change(self, body: Json) -> None:
        for choice in choices(body):
            entries = (choice.get("logprobs") or {}).get("content")
            if isinstance(entries, list) and len(entries) > 1:
                values = [entry["logprob"] for entry in entries]
                for entry, value in zip(entries[1:], values, strict=False):
                    entry["logprob"] = value - 1.0


class ProbabilitiesInsteadOfLogs(OnBoth):
    def change(self, body: Json) -> None:
        for choice in choices(body):
            for entry in (choice.get("logprobs") or {}).get("content") or ():
                entry["logprob"] = 0.9
                for top in entry["top_logprobs"]:
                    top["logprob"] = 0.9


class OneIdForAll(OnBoth):
    def change(self, body: Json) -> None:
        if "choices" in body:
            body["id"] = "chatcmpl-0"


class NewIdPerChunk(Fault):
    _count = itertools.count()

    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        return [{**event, "id": f"chunk-{next(self._count)}"}]


class MissingRole(Fault):
    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        for choice in choices(event):
            (choice.get("delta") or {}).pop("role", None)
        return [event]


class RepeatedEnd(Fault):
    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        is_end = any(choice.get("finish_reason") for choice in choices(event))
        return [event, event] if is_end else [event]


class MissingUsageChunk(Fault):
    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        return [event] if event.get("choices") else []


class UnaskedUsageChunk(Fault):
    def on_event(self, event: Json, passage: Passage) -> list[Json]:
        is_end = any(choice.get("finish_reason") for choice in choices(event))
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return [event, {**event, "choices": [], "usage": usage}] if is_end else [event]


class PromptCountOffByOne(OnBoth):
    def change(self, body: Json) -> None:
        usage = body.get("usage")
        if isinstance(usage, dict):
            usage["prompt_tokens"] += 1
            usage["total_tokens"] += 1


class WrongTotal(OnBoth):
    def change(self, body: Json) -> None:
        usage = body.get("usage")
        if isinstance(usage, dict):
            usage["total_tokens"] = usage["prompt_tokens"]


class CachedMoreThanThereIs(OnBoth):
    def change(self, body: Json) -> None:
        usage = body.get("usage")
        if isinstance(usage, dict):
            details = {"cached_tokens": usage["prompt_tokens"] + 16}
            usage["prompt_tokens_details"] = details


class AnyModelWillDo(Fault):
    def on_request(self, body: Json, passage: Passage) -> Json:
        return {**body, "model": "fake"} if "model" in body else body


class DefaultsForWrongTypes(Fault):
    """As llama.cpp does: a value of the wrong type is replaced silently."""

    def on_request(self, body: Json, passage: Passage) -> Json:
        numbers = ("max_tokens", "temperature", "top_p", "n", "seed")
        return {k: v for k, v in body.items() if k not in numbers or isinstance(v, int | float)}


class UnboundedValues(Fault):
    def on_request(self, body: Json, passage: Passage) -> Json:
        for name, low in (("max_tokens", 1), ("temperature", 0), ("n", 1)):
            if isinstance(body.get(name), int | float):
                body[name] = max(body[name], low)
        return body


class ShownStop(OnBoth):
    """The stop string stays at the end of the text."""

    def __init__(self) -> None:
        self._stop = ""

    def on_request(self, body: Json, passage: Passage) -> Json:
        stop = body.get("stop")
        first = stop[0] if isinstance(stop, list) and stop else stop
        self._stop = first if isinstance(first, str) else ""
        return body

    def change(self, body: Json) -> None:
        for choice in choices(body):
            if self._stop and choice.get("finish_reason") == "stop":
                spoken = choice.get("message") or choice.get("delta") or choice
                name = "text" if "text" in spoken else "content"
                spoken[name] = (spoken.get(name) or "") + self._stop


class HeldBackForEver(Fault):
    """As llama.cpp does: what might begin a stop string is dropped when the text ends."""

    def __init__(self) -> None:
        self._stops: list[str] = []

    def on_request(self, body: Json, passage: Passage) -> Json:
        stop = body.get("stop") or []
        self._stops = [stop] if isinstance(stop, str) else [s for s in stop if isinstance(s, str)]
        return body

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        for choice in choices(body):
            spoken = choice.get("message") or choice
            name = "text" if "text" in spoken else "content"
            text = spoken.get(name) or ""
            for stop in self._stops:
                for length in range(min(len(stop), len(text)), 0, -1):
                    if text.endswith(stop[:length]) and length < len(stop):
                        spoken[name] = text[:-length]
        return body


class IgnoredEcho(Fault):
    def on_request(self, body: Json, passage: Passage) -> Json:
        return {key: value for key, value in body.items() if key != "echo"}


class PromptsInWrongOrder(Fault):
    def on_request(self, body: Json, passage: Passage) -> Json:
        prompt = body.get("prompt")
        is_several = isinstance(prompt, list) and all(isinstance(one, str) for one in prompt)
        return {**body, "prompt": prompt[::-1]} if is_several else body  # type: ignore[index]


class BeginTokenAdded(Fault):
    def on_request(self, body: Json, passage: Passage) -> Json:
        prompt = body.get("prompt")
        is_ids = isinstance(prompt, list) and prompt and type(prompt[0]) is int
        return {**body, "prompt": [1, *prompt]} if is_ids else body  # type: ignore[misc]


class NoChoices(OnBoth):
    """As content filters do."""

    def change(self, body: Json) -> None:
        if "choices" in body and body.get("object") == "chat.completion":
            body["choices"] = []


class CutText(Fault):
    """Blanks at the end of whole answers are stripped."""

    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        for choice in choices(body):
            spoken = choice.get("message") or choice
            name = "text" if "text" in spoken else "content"
            spoken[name] = (spoken.get(name) or "")[:-1]
        return body


class ForeignPage(Fault):
    """A proxy in front answers errors with a page for people."""

    def on_head(self, head: AnswerHead, passage: Passage) -> None:
        if head.status >= 400:
            head.content_type = "text/html"


class ShownTraceback(Fault):
    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        if isinstance(body.get("error"), dict):
            body["error"]["message"] = "Traceback (most recent call last): …"
        return body


class Milliseconds(OnBoth):
    def change(self, body: Json) -> None:
        if "created" in body and "choices" in body:
            body["created"] *= 1000


class ModelListedTwice(Fault):
    def on_answer(self, body: Json, head: AnswerHead, passage: Passage) -> Json:
        return {**body, "data": body["data"] * 2} if passage.path == "/v1/models" else body


FOUND_BY: dict[type[Fault], str] = {
    LostSystemPrompt: "chat.system-prompt",
    LostHistory: "chat.turns",
    DefaultTemperature: "determinism.repeated.chat",
    CrossTalk: "concurrency.own-answers",
    ShiftedLogprobs: "logprobs.greedy.chat",
    ProbabilitiesInsteadOfLogs: "logprobs.probabilities.chat",
    OneIdForAll: "concurrency.ids",
    NewIdPerChunk: "streams.chunks.chat",
    MissingRole: "streams.role",
    RepeatedEnd: "streams.end.text",
    MissingUsageChunk: "streams.usage.text",
    UnaskedUsageChunk: "streams.usage.chat",
    PromptCountOffByOne: "usage.tokenizer.chat",
    WrongTotal: "usage.sums.text",
    CachedMoreThanThereIs: "usage.cached.text",
    AnyModelWillDo: "errors.unknown-model.chat",
    DefaultsForWrongTypes: "errors.wrong-types.chat",
    UnboundedValues: "errors.out-of-range.text",
    ShownStop: "stops.one.chat",
    HeldBackForEver: "stops.held-back.text",
    IgnoredEcho: "completions.echo",
    PromptsInWrongOrder: "completions.several-prompts",
    BeginTokenAdded: "completions.token-ids",
    NoChoices: "chat.shape",
    CutText: "streams.equal-whole.text",
    ForeignPage: "errors.missing.chat",
    ShownTraceback: "errors.malformed.text",
    Milliseconds: "completions.shape",
    ModelListedTwice: "models.list",
}

"""Text completions: from body to `Ask`, from text to `text_completion` objects."""

from collections.abc import Sequence

import msgspec

from steelyard.contract import FinishReason, Usage
from steelyard.contract.errors import UnsupportedFeature
from steelyard.gateway.api.completions import (
    DEFAULT_MAX_TOKENS,
    CompletionRequest,
    plain_prompts,
)
from steelyard.gateway.api.fields import COMPLETION_POLICY
from steelyard.gateway.api.json_body import BodyDecoder
from steelyard.gateway.api.sampling import check_logprobs
from steelyard.gateway.config import RequestLimits
from steelyard.gateway.generation.dialect import (
    CollectedChoice,
    Fragments,
    Logprobs,
    UsageBody,
    usage_body,
    usage_event,
)
from steelyard.gateway.generation.logprobs import CompletionLogprobs
from steelyard.gateway.generation.order import Ask, Order, OrderedChoice
from steelyard.gateway.generation.prompts import Prompt, TextPrompt, TokenPrompt
from steelyard.gateway.ports import TextModel

__all__ = ["CompletionDialect"]

_KIND = "text_completion"


class CompletionDialect:
    """`/v1/completions`."""

    id_prefix = "cmpl-"

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._decoder = BodyDecoder(
            CompletionRequest, COMPLETION_POLICY, max_field_bytes=limits.max_field_bytes
        )

    def read(self, body: bytes) -> Ask:
        """See `Dialect`."""
        request = self._decoder.decode(body)
        if request.echo and request.logprobs is not None:
            raise UnsupportedFeature(
                "echo with logprobs is not supported by this server",
                param="echo",
                fix="Ask for one of the two.",
            )
        logprobs = request.logprobs
        if logprobs is not None:
            check_logprobs(logprobs, "logprobs", self._limits)
        return Ask(
            fields=request,
            prompts=_prompts(request),
            prompt_param="prompt",
            asked_tokens=request.max_tokens,
            default_tokens=DEFAULT_MAX_TOKENS,
            logprobs=logprobs,
            echo=bool(request.echo),
        )

    def events(self, order: Order, choice: OrderedChoice) -> "CompletionEvents":
        """See `Dialect`."""
        return CompletionEvents(order, choice)

    def usage_event(self, order: Order, usage: Usage) -> bytes:
        """See `Dialect`."""
        return usage_event(order, _KIND, usage)

    def answer(self, order: Order, choices: Sequence[CollectedChoice], usage: Usage) -> bytes:
        """See `Dialect`."""
        wants_ids = bool(order.ask.fields.return_token_ids)
        body = _Answer(
            id=order.response_id,
            created=order.created,
            model=order.served.name,
            choices=[_choice(one, order.served.text, wants_ids) for one in choices],
            usage=usage_body(usage),
        )
        return _ENCODER.encode(body)


class CompletionEvents:
    """Events of one choice; see `ChoiceEvents`."""

    __slots__ = ("_fragments", "_offset", "_text_model", "opening", "text")

    def __init__(self, order: Order, choice: OrderedChoice) -> None:
        self._fragments = Fragments(order, _KIND, choice.index, open_text='"text":', close_text="")
        self._text_model = order.served.text
        self._offset = 0
        self.text = self._fragments.text
        self.opening = b""
        if order.ask.fields.return_token_ids:
            ids = _ENCODER.encode(choice.request.prompt_ids)
            self.opening = self._fragments.full("", None, b"null", b',"prompt_token_ids":' + ids)

    def full(
        self,
        text: str,
        finish_reason: FinishReason | None,
        token_ids: Sequence[int] | None,
        logprobs: Logprobs | None,
    ) -> bytes:
        """See `ChoiceEvents`."""
        values = b"null"
        if logprobs is not None:
            lists = CompletionLogprobs.of(
                logprobs.ids, logprobs.values, self._text_model, self._offset
            )
            self._offset = lists.end if lists.tokens else self._offset
            values = _ENCODER.encode(lists)
        extras = b"" if token_ids is None else b',"token_ids":' + _ENCODER.encode(token_ids)
        return self._fragments.full(text, finish_reason, values, extras)


class _Choice(msgspec.Struct):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str
    prompt_token_ids: Sequence[int] | msgspec.UnsetType = msgspec.UNSET
    token_ids: Sequence[int] | msgspec.UnsetType = msgspec.UNSET


class _Answer(msgspec.Struct, kw_only=True):
    id: str
    object: str = _KIND
    created: int
    model: str
    choices: list[_Choice]
    usage: UsageBody


def _choice(collected: CollectedChoice, text: TextModel, wants_ids: bool) -> _Choice:
    logprobs = collected.logprobs
    return _Choice(
        collected.choice.index,
        collected.text,
        None if logprobs is None else CompletionLogprobs.of(logprobs.ids, logprobs.values, text, 0),
        collected.finish_reason,
        collected.choice.request.prompt_ids if wants_ids else msgspec.UNSET,
        collected.token_ids if wants_ids else msgspec.UNSET,
    )


def _prompts(request: CompletionRequest) -> list[Prompt]:
    special = request.add_special_tokens is not False
    return [
        TextPrompt(prompt, special) if isinstance(prompt, str) else TokenPrompt(prompt)
        for prompt in plain_prompts(request)
    ]


_ENCODER = msgspec.json.Encoder()

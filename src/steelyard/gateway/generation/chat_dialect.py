"""Chat completions: from body to `Ask`, from text to `chat.completion` and its chunks."""

from collections.abc import Sequence

import msgspec

from steelyard.contract import FinishReason, Usage
from steelyard.contract.errors import InvalidRequest
from steelyard.gateway.api.chat import ChatRequest, plain_messages
from steelyard.gateway.api.fields import CHAT_POLICY
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
from steelyard.gateway.generation.logprobs import ChatLogprobs
from steelyard.gateway.generation.order import Ask, Order, OrderedChoice
from steelyard.gateway.generation.prompts import Conversation
from steelyard.gateway.ports import TextModel

__all__ = ["ChatDialect"]

_CHUNK = "chat.completion.chunk"


class ChatDialect:
    """`/v1/chat/completions`."""

    id_prefix = "chatcmpl-"

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._decoder = BodyDecoder(
            ChatRequest, CHAT_POLICY, max_field_bytes=limits.max_field_bytes
        )

    def read(self, body: bytes) -> Ask:
        """See `Dialect`."""
        request = self._decoder.decode(body)
        if len(request.messages) > self._limits.max_messages:
            raise InvalidRequest(
                f"there are {len(request.messages)} messages, "
                f"the limit is {self._limits.max_messages}",
                param="messages",
            )
        return Ask(
            fields=request,
            prompts=(_conversation(request),),
            prompt_param="messages",
            asked_tokens=request.max_completion_tokens or request.max_tokens,
            default_tokens=self._limits.default_max_tokens,
            logprobs=self._logprobs(request),
        )

    def events(self, order: Order, choice: OrderedChoice) -> "ChatEvents":
        """See `Dialect`."""
        return ChatEvents(order, choice)

    def usage_event(self, order: Order, usage: Usage) -> bytes:
        """See `Dialect`."""
        return usage_event(order, _CHUNK, usage)

    def answer(self, order: Order, choices: Sequence[CollectedChoice], usage: Usage) -> bytes:
        """See `Dialect`."""
        wants_ids = bool(order.ask.fields.return_token_ids)
        body = _Answer(
            id=order.response_id,
            created=order.created,
            model=order.served.name,
            choices=[_choice(one, order.served.text, wants_ids) for one in choices],
            usage=usage_body(usage),
            prompt_token_ids=order.choices[0].request.prompt_ids if wants_ids else msgspec.UNSET,
        )
        return _ENCODER.encode(body)

    def _logprobs(self, request: ChatRequest) -> int | None:
        if request.top_logprobs and not request.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
        if not request.logprobs:
            return None
        return check_logprobs(request.top_logprobs or 0, "top_logprobs", self._limits)


class ChatEvents:
    """Events of one choice; see `ChoiceEvents`."""

    __slots__ = ("_fragments", "_text_model", "opening", "text")

    def __init__(self, order: Order, choice: OrderedChoice) -> None:
        self._fragments = Fragments(
            order, _CHUNK, choice.index, open_text='"delta":{"content":', close_text="}"
        )
        self._text_model = order.served.text
        self.text = self._fragments.text
        role = Fragments(
            order,
            _CHUNK,
            choice.index,
            open_text='"delta":{"role":"assistant","content":',
            close_text="}",
        )
        self.opening = role.text("")
        if order.ask.fields.return_token_ids:
            ids = _ENCODER.encode(choice.request.prompt_ids)
            self.opening = self.opening.replace(b"}\n\n", b',"prompt_token_ids":%b}\n\n' % ids)

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
            values = _ENCODER.encode(
                ChatLogprobs.of(logprobs.ids, logprobs.values, self._text_model)
            )
        extras = b"" if token_ids is None else b',"token_ids":' + _ENCODER.encode(token_ids)
        return self._fragments.full(text, finish_reason, values, extras)


class _Message(msgspec.Struct):
    content: str
    role: str = "assistant"
    refusal: None = None


class _Choice(msgspec.Struct):
    index: int
    message: _Message
    logprobs: ChatLogprobs | None
    finish_reason: str
    token_ids: Sequence[int] | msgspec.UnsetType = msgspec.UNSET


class _Answer(msgspec.Struct, kw_only=True):
    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[_Choice]
    usage: UsageBody
    prompt_token_ids: Sequence[int] | msgspec.UnsetType = msgspec.UNSET


def _choice(collected: CollectedChoice, text: TextModel, wants_ids: bool) -> _Choice:
    logprobs = collected.logprobs
    return _Choice(
        collected.choice.index,
        _Message(collected.text),
        None if logprobs is None else ChatLogprobs.of(logprobs.ids, logprobs.values, text),
        collected.finish_reason,
        collected.token_ids if wants_ids else msgspec.UNSET,
    )


def _conversation(request: ChatRequest) -> Conversation:
    continues = bool(request.continue_final_message)
    opens = request.add_generation_prompt
    if continues and opens:
        raise InvalidRequest(
            "add_generation_prompt and continue_final_message exclude each other",
            param="continue_final_message",
        )
    return Conversation(
        plain_messages(request.messages),
        add_generation_prompt=not continues if opens is None else opens,
        continue_final_message=continues,
    )


_ENCODER = msgspec.json.Encoder()

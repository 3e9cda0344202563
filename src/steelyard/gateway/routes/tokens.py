"""`/tokenize` and `/detokenize`: the text model without the engine."""

from steelyard.contract.errors import InvalidRequest
from steelyard.gateway.api.fields import TOKEN_POLICY
from steelyard.gateway.api.json_body import BodyDecoder
from steelyard.gateway.api.tokens import (
    DetokenizeAnswer,
    DetokenizeRequest,
    TokenizeAnswer,
    TokenizeRequest,
)
from steelyard.gateway.generation.prompts import Conversation, Prompt, PromptEncoder, TextPrompt
from steelyard.gateway.http import Exchange, json_answer
from steelyard.gateway.limits.limiter import Limiter
from steelyard.gateway.models import ModelTable

__all__ = ["Tokens"]


class Tokens:
    """Text to tokens and back, exactly as a completion would do it.

    A request counts as one of its tenant's; tokens do not count, since no engine computes them.
    """

    def __init__(
        self, models: ModelTable, encoder: PromptEncoder, limiter: Limiter, max_field_bytes: int
    ) -> None:
        self._models = models
        self._encoder = encoder
        self._limiter = limiter
        self._tokenize = BodyDecoder(TokenizeRequest, TOKEN_POLICY, max_field_bytes=max_field_bytes)
        self._detokenize = BodyDecoder(
            DetokenizeRequest, TOKEN_POLICY, max_field_bytes=max_field_bytes
        )

    async def tokenize(self, exchange: Exchange) -> None:
        """Ids of a prompt or of a conversation."""
        request = self._tokenize.decode(await exchange.read_body())
        served = self._models.find(request.model, exchange.caller)
        info = served.engine.info
        prompt = _prompt(request)
        async with self._limiter.permit(exchange):
            (ids,) = await self._encoder.encode([prompt], served.text, info.vocab_size)
        strings = [served.text.token_text(i) for i in ids] if request.return_token_strs else None
        await exchange.send(
            json_answer(TokenizeAnswer(len(ids), info.context_tokens, list(ids), strings))
        )

    async def detokenize(self, exchange: Exchange) -> None:
        """Text of ids."""
        request = self._detokenize.decode(await exchange.read_body())
        served = self._models.find(request.model, exchange.caller)
        vocab_size = served.engine.info.vocab_size
        for at, token_id in enumerate(request.tokens):
            if not 0 <= token_id < vocab_size:
                raise InvalidRequest(
                    f"{token_id} is not a token id; they are below {vocab_size}",
                    param=f"tokens[{at}]",
                )
        async with self._limiter.permit(exchange):
            text = served.text.decode(request.tokens)
        await exchange.send(json_answer(DetokenizeAnswer(text)))


def _prompt(request: TokenizeRequest) -> Prompt:
    content = request.text_or_messages()
    if isinstance(content, str):
        return TextPrompt(content, request.add_special_tokens is not False)
    continues = bool(request.continue_final_message)
    opens = request.add_generation_prompt
    return Conversation(
        content,
        add_generation_prompt=not continues if opens is None else opens,
        continue_final_message=continues,
    )

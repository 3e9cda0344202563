"""The text side of one model, as the gateway uses it: prompts to token ids, token ids to text.

Tokenizer, chat template and end tokens in one object. Which requests may use it, and what they
are allowed to ask, is the gateway's business.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steelyard.checkpoints import Checkpoint
from steelyard.contract.errors import UnsupportedFeature
from steelyard.text.chat_template import ChatTemplate, TemplateLimits
from steelyard.text.detokenizer import Detokenizer
from steelyard.text.tokenizer import Tokenizer, open_tokenizer

__all__ = ["TextModel", "open_text_model"]


def open_text_model(checkpoint: Checkpoint, limits: TemplateLimits | None = None) -> "TextModel":
    """Load tokenizer and chat template. Raises `CheckpointError` when one of them is unusable."""
    template = None
    if checkpoint.chat_template is not None:
        template = ChatTemplate(
            checkpoint.chat_template,
            where=str(checkpoint.path),
            special_tokens=checkpoint.special_tokens,
            limits=limits,
        )
    tokenizer = open_tokenizer(checkpoint.vocabulary)
    return TextModel(tokenizer, template, _end_token_ids(checkpoint, tokenizer))


class TextModel:
    """Immutable once made, but for caches; safe to share between streams of an event loop."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        end_token_ids: tuple[int, ...],
    ) -> None:
        """`template` None means a base model: completions only."""
        self.tokenizer = tokenizer
        self.end_token_ids = end_token_ids
        """Tokens that end an answer."""
        self._template = template

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    @property
    def vocab_size(self) -> int:
        """How many tokens the tokenizer knows."""
        return self.tokenizer.vocab_size

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of a plain prompt, with the BOS token where the model is used to one."""
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Ids of a conversation. The template writes all special tokens, so none are added.

        `messages` are plain JSON values; most templates want `content` to be a text. Raises as
        `render_chat` does.
        """
        text = self.render_chat(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=variables,
        )
        return self.tokenizer.encode(text, add_special_tokens=False)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of a conversation; see `ChatTemplate.render`.

        Raises `UnsupportedFeature` when the model has no chat template.
        """
        if self._template is None:
            raise UnsupportedFeature(
                "this model has no chat template", param="messages", fix="use /v1/completions"
            )
        return self._template.render(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=variables,
        )

    def decode(self, token_ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ids."""
        return self.tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def stream(self, *, skip_special_tokens: bool = True) -> Detokenizer:
        """A new incremental `decode`, one for each stream."""
        return self.tokenizer.stream(skip_special_tokens=skip_special_tokens)

    def token_text(self, token_id: int) -> str:
        """A token alone, for people: incomplete characters show as U+FFFD."""
        return self.tokenizer.token_text(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to the text."""
        return self.tokenizer.token_bytes(token_id)


def _end_token_ids(checkpoint: Checkpoint, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Those of the configuration; the tokenizer's EOS where it names none."""
    if checkpoint.config.eos_token_ids or checkpoint.special_tokens.eos is None:
        return checkpoint.config.eos_token_ids
    end_id = tokenizer.token_id(checkpoint.special_tokens.eos)
    return () if end_id is None else (end_id,)

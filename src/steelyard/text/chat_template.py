"""Renders a conversation into the prompt text that the model was trained on.

Templates come with the model and are untrusted all the same: they run in a sandbox with limits on
time, steps and memory (`_template_sandbox`). Templates inside requests are not supported, by
design. Turning the text into tokens is `text_model`'s work.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from steelyard.checkpoints import SpecialTokens
from steelyard.contract import Clock, RealClock
from steelyard.contract.errors import CheckpointError, InvalidRequest
from steelyard.text._template_budget import (
    TemplateBudget,
    TemplateLimitExceeded,
    TemplateLimits,
    running_budget,
)
from steelyard.text._template_instrument import instrument
from steelyard.text._template_sandbox import TemplateEnvironment, TemplateRefusal

__all__ = ["ChatTemplate", "TemplateLimits"]

_MARK = "\ue000continue here\ue000 "
"""Private-use characters: nothing that a template would look for or change."""
_MAX_MESSAGE_CHARS = 500
_COMPILE_ERRORS = (
    TemplateError,
    TemplateLimitExceeded,
    SyntaxError,
    RecursionError,
    MemoryError,
    OverflowError,
    ValueError,
)
_RENDER_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class ChatTemplate:
    """One compiled template. May be used by several threads at once."""

    def __init__(
        self,
        source: str,
        where: str,
        special_tokens: SpecialTokens,
        *,
        limits: TemplateLimits | None = None,
        clock: Clock | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Compile. `where` names the template's file in errors; `now` is for templates that write
        the date. Raises `CheckpointError` when the template is not valid here.
        """
        self.source = source
        self._where = where
        self._limits = limits or TemplateLimits()
        self._clock = clock or RealClock()
        self._tokens = _token_variables(special_tokens)
        self._template = self._compile(TemplateEnvironment(now))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text. All arguments hold plain JSON values.

        With `continue_final_message` it ends where the last message's content ends, so that the
        model goes on with it. `variables` are further names that the template may read, such as
        `enable_thinking`; they cannot replace the others. Raises `InvalidRequest` when the template
        refuses the messages, fails on them or exceeds a limit, `CheckpointError` when it tries
        what it may not do.
        """
        if continue_final_message:
            messages = _with_mark(messages)
            add_generation_prompt = False
        names = {
            **(variables or {}),
            **self._tokens,
            "messages": messages,
            "tools": tools,
            "documents": (variables or {}).get("documents"),
            "add_generation_prompt": add_generation_prompt,
        }
        text = self._run(names)
        return _before_mark(text) if continue_final_message else text

    def _run(self, names: Mapping[str, Any]) -> str:
        """Render under a fresh budget, with every error put into our tree."""
        try:
            with running_budget(TemplateBudget(self._limits, self._clock)):
                return self._joined(names)
        except TemplateRefusal as refusal:
            raise _refused(f"the model's chat template says: {_short(refusal)}") from refusal
        except (TemplateLimitExceeded, RecursionError, MemoryError, OverflowError) as error:
            raise _refused(f"the chat template does not finish: {_short(error)}") from error
        except SecurityError as error:
            raise CheckpointError(
                f"the chat template does what is not allowed: {_short(error)}", param=self._where
            ) from error
        except _RENDER_ERRORS as error:
            raise _refused(
                f"the model's chat template cannot render these messages: {_short(error)}"
            ) from error

    def _joined(self, names: Mapping[str, Any]) -> str:
        parts, left_chars = [], self._limits.output_chars
        for part in self._template.generate(names):
            left_chars -= len(part)
            if left_chars < 0:
                raise TemplateLimitExceeded(
                    f"the prompt has more than {self._limits.output_chars} characters"
                )
            parts.append(part)
        return "".join(parts)

    def _compile(self, environment: TemplateEnvironment) -> jinja2.Template:
        if len(self.source) > self._limits.source_chars:
            raise CheckpointError(
                f"the chat template has {len(self.source)} characters, "
                f"more than {self._limits.source_chars}",
                param=self._where,
            )
        try:
            # Under a budget, because the compiler works out constant expressions.
            with running_budget(TemplateBudget(self._limits, self._clock)):
                code = environment.compile(instrument(environment.parse(self.source)))
                return jinja2.Template.from_code(environment, code, environment.make_globals(None))
        except _COMPILE_ERRORS as error:
            line = f" in line {error.lineno}" if isinstance(error, TemplateSyntaxError) else ""
            raise CheckpointError(
                f"the chat template is not valid{line}: {_short(error)}", param=self._where
            ) from error


def _with_mark(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages, with a mark behind the content of the last one."""
    content = messages[-1].get("content") if messages else None
    if not isinstance(content, str):
        raise _refused("only a final message whose content is a text can be continued")
    return [*messages[:-1], {**messages[-1], "content": content + _MARK}]


def _before_mark(text: str) -> str:
    """The text up to the mark. A template that trims contents has cut the mark's last space, too:
    then the content's own spaces before it would have been trimmed without the mark.
    """
    at = text.rfind(_MARK.rstrip())
    if at < 0:
        raise _refused("the model's chat template does not show the content of the final message")
    return text[:at] if text.startswith(_MARK, at) else text[:at].rstrip()


def _token_variables(special_tokens: SpecialTokens) -> dict[str, str]:
    """Under the names that templates use; tokens that the model lacks stay undefined."""
    named = {
        "bos_token": special_tokens.bos,
        "eos_token": special_tokens.eos,
        "pad_token": special_tokens.pad,
        "unk_token": special_tokens.unk,
    }
    return {name: token for name, token in named.items() if token is not None}


def _refused(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="messages")


def _short(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]}…"

"""What happens to parameters that a schema does not hold.

Three kinds. *Ignored* ones never change the answer's tokens. *Unsupported* ones would: they are
accepted with the values that mean "off" (clients send those) and refused with any other. All
others are refused with a suggestion, because a misspelt `temprature` that is silently ignored
costs its author a day.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from steelyard.contract.errors import InvalidRequest, UnsupportedFeature

__all__ = ["CHAT_POLICY", "COMPLETION_POLICY", "TOKEN_POLICY", "FieldPolicy", "suggest"]


@dataclass(frozen=True, slots=True)
class FieldPolicy:
    """Names outside a schema, for one endpoint."""

    ignored: frozenset[str]
    unsupported: Mapping[str, tuple[Any, ...]]
    """Name → values that mean the same as leaving it out (null always does)."""

    def check(self, foreign: Mapping[str, bytes], known: frozenset[str]) -> None:
        """`foreign` maps names to their JSON text, `known` are the schema's own names.

        Raises `UnsupportedFeature`, or `InvalidRequest` for a name nobody knows.
        """
        for name, value in foreign.items():
            if name in self.ignored:
                continue
            if name in self.unsupported:
                if not _is_off(value, self.unsupported[name]):
                    raise UnsupportedFeature(
                        f"{name} is not supported by this server", param=name, fix="Leave it out."
                    )
                continue
            raise InvalidRequest(
                f"{_shown(name)} is not a known parameter",
                param=_shown(name),
                fix=suggest(name, known | self.unsupported.keys()),
            )


def suggest(name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known parameter, or that none is near."""
    near = difflib.get_close_matches(name[:64], list(known), n=1, cutoff=0.7)
    return f"Did you mean {near[0]}?" if near else "Leave it out."


def _is_off(value: bytes, off: tuple[Any, ...]) -> bool:
    if len(value) > 64:  # every value that means "off" is short
        return False
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return decoded is None or any(decoded == one and type(decoded) is type(one) for one in off)


def _shown(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:64])


_IGNORED = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)

# vLLM's and OpenAI's parameters that change the output and are not built (yet).
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (),
    "bad_words": ([],),
    "guided_choice": (),
    "guided_decoding_backend": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "kv_transfer_params": (),
    "length_penalty": (1, 1.0),
    "logits_processors": ([],),
    "prompt_logprobs": (),
    "response_format": ({"type": "text"},),
    "spaces_between_special_tokens": (True,),
    "structured_outputs": (),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}

_CHAT_UNSUPPORTED = _UNSUPPORTED | {
    "add_special_tokens": (False,),
    "audio": (),
    "best_of": (1,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "documents": ([],),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "include_reasoning": (True, False),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "reasoning_effort": ("none",),
    "thinking_token_budget": (),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}

_COMPLETION_UNSUPPORTED = _UNSUPPORTED | {
    "prompt_embeds": (),
    "suffix": ("",),
}


CHAT_POLICY = FieldPolicy(_IGNORED, _CHAT_UNSUPPORTED)
COMPLETION_POLICY = FieldPolicy(_IGNORED, _COMPLETION_UNSUPPORTED)
TOKEN_POLICY = FieldPolicy(
    _IGNORED,
    {"chat_template": (), "chat_template_kwargs": ({},), "tools": ([],), "mm_processor_kwargs": ()},
)

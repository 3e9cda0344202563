"""The tokenizer a client should use on the mock's text, as files that other programs load.

Hugging Face's format: one token per word between spaces, unknown words included. The mock itself
never tokenises (`text`).
"""

from pathlib import Path
from typing import Any

import msgspec

from steelyard.contract.errors import SettingsError
from steelyard.lab.mock.text import VOCABULARY_TOKENS, word

__all__ = ["write_tokenizer"]

_UNKNOWN = "unknown"
"""An ordinary word: as a special token, programs would leave it out of the prompts they make."""


def write_tokenizer(folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`. Raises `SettingsError`."""
    vocabulary = {word(token_id): token_id for token_id in range(VOCABULARY_TOKENS)}
    vocabulary[_UNKNOWN] = VOCABULARY_TOKENS
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": _UNKNOWN},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1_000_000,
        "chat_template": _CHAT_TEMPLATE,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
            (folder / name).write_bytes(msgspec.json.encode(content))
    except OSError as error:
        raise SettingsError(error.strerror or str(error), param=str(folder)) from error


_CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
"""The mock counts the words of the contents alone."""

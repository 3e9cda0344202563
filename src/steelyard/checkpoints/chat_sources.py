"""Where a directory of Hugging Face files keeps its chat template and the texts of special tokens.

Hands out what the files say; the template is compiled and run in `text.chat_template`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steelyard.checkpoints._reading import damaged, opened, read_json
from steelyard.checkpoints.description import SpecialTokens

__all__ = ["MAX_TEMPLATE_BYTES", "read_chat_template", "read_special_tokens"]

MAX_TEMPLATE_BYTES = 1024 * 1024
_MAX_JSON_BYTES = 16 * 1024 * 1024


def read_chat_template(directory: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """The default template: `chat_template.jinja`, else the tokenizer config's; None without."""
    path = directory / "chat_template.jinja"
    if path.exists():
        return _read_text(path)
    for where, source in (
        ("tokenizer_config.json", tokenizer_config),
        ("chat_template.json", _read_optional(directory / "chat_template.json")),
    ):
        template = source.get("chat_template")
        if isinstance(template, list):
            template = _default_of(template)
        if template is None:
            continue
        if not isinstance(template, str):
            raise damaged(directory / where, "chat_template is no text")
        return template
    return None


def read_special_tokens(directory: Path, tokenizer_config: Mapping[str, Any]) -> SpecialTokens:
    """Texts of the named tokens, from the tokenizer config, else from the older file for them."""
    older = _read_optional(directory / "special_tokens_map.json")

    def text_of(key: str) -> str | None:
        value = tokenizer_config.get(key, older.get(key))
        if isinstance(value, dict):  # a serialised AddedToken
            value = value.get("content")
        if value is not None and not isinstance(value, str):
            raise damaged(directory / "tokenizer_config.json", f"{key} is {value!r}")
        return value

    return SpecialTokens(
        bos=text_of("bos_token"),
        eos=text_of("eos_token"),
        pad=text_of("pad_token"),
        unk=text_of("unk_token"),
    )


def _default_of(templates: list[Any]) -> Any:
    """Of a list of named templates, the one called `default`."""
    named = {item.get("name"): item.get("template") for item in templates if isinstance(item, dict)}
    return named.get("default")


def _read_text(path: Path) -> str:
    with opened(path) as (source, size_bytes):
        if size_bytes > MAX_TEMPLATE_BYTES:
            raise damaged(path, f"{size_bytes} bytes, more than {MAX_TEMPLATE_BYTES}")
        body = source.read(MAX_TEMPLATE_BYTES)
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise damaged(path, "not valid UTF-8") from error


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path, _MAX_JSON_BYTES) if path.exists() else {}

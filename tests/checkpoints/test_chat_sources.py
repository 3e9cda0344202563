"""Chat template and special tokens are found wherever a model keeps them."""

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.checkpoints import SpecialTokens
from steelyard.checkpoints.chat_sources import (
    MAX_TEMPLATE_BYTES,
    read_chat_template,
    read_special_tokens,
)
from steelyard.contract.errors import CheckpointError


def test_the_file_of_its_own_wins(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("own")
    assert read_chat_template(tmp_path, {"chat_template": "config"}) == "own"


def test_the_tokenizer_config_and_the_older_file_follow(tmp_path: Path) -> None:
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "older"}))
    assert read_chat_template(tmp_path, {"chat_template": "config"}) == "config"
    assert read_chat_template(tmp_path, {}) == "older"


def test_of_several_named_templates_the_default_is_taken(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert read_chat_template(tmp_path, {"chat_template": named}) == "d"
    assert read_chat_template(tmp_path, {"chat_template": named[:1]}) is None


def test_a_base_model_has_none(tmp_path: Path) -> None:
    assert read_chat_template(tmp_path, {}) is None


@pytest.mark.parametrize("value", [7, {"a": 1}, [{"name": "default", "template": 7}]])
def test_a_template_that_is_no_text_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CheckpointError, match="chat_template"):
        read_chat_template(tmp_path, {"chat_template": value})


@pytest.mark.parametrize("body", [b"\xff\xfe", b"x" * (MAX_TEMPLATE_BYTES + 1)])
def test_an_unreadable_or_enormous_file_is_refused(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(body)
    with pytest.raises(CheckpointError) as caught:
        read_chat_template(tmp_path, {})
    assert caught.value.param == str(tmp_path / "chat_template.jinja")


def test_special_tokens_come_from_the_config_else_from_the_older_file(tmp_path: Path) -> None:
    older = {"bos_token": "<old>", "unk_token": {"content": "<unk>", "lstrip": False}}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(older))
    config = {"bos_token": {"__type": "AddedToken", "content": "<s>"}, "pad_token": None}
    found = read_special_tokens(tmp_path, config)
    assert found == SpecialTokens(bos="<s>", unk="<unk>")


def test_a_special_token_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="bos_token"):
        read_special_tokens(tmp_path, {"bos_token": 7})

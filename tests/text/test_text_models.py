"""Tokenizer, template and end tokens together, as the gateway uses them."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from steelyard.checkpoints import GGUFVocabulary, open_checkpoint
from steelyard.checkpoints.gguf_file import read_gguf
from steelyard.contract.errors import CheckpointError, UnsupportedFeature
from steelyard.text import TextModel, open_text_model
from steelyard.text.gguf_tokenizer import build_from_gguf
from tests.checkpoints.builders import write_gguf, write_hf_directory

TALK = [{"role": "user", "content": "hello"}]


def _model(tmp_path: Path, **fields: Any) -> TextModel:
    return open_text_model(open_checkpoint(write_gguf(tmp_path / "m.gguf", fields=fields)))


def test_a_conversation_becomes_the_tokens_of_its_rendered_text(tmp_path: Path) -> None:
    model = _model(tmp_path)
    text = model.render_chat(TALK)
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    ids = model.encode_chat(TALK)
    assert ids == model.encode(text, add_special_tokens=False)
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 2, 1)


def test_bos_comes_from_the_template_or_with_plain_text_but_never_twice(tmp_path: Path) -> None:
    template = "{{ bos_token }}{{ messages[0].content }}"
    fields = {"tokenizer.chat_template": template, "tokenizer.ggml.add_bos_token": True}
    model = _model(tmp_path, **fields)
    assert model.encode_chat(TALK).count(1) == 1
    assert model.encode("hello").count(1) == 1
    assert model.encode("hello", add_special_tokens=False).count(1) == 0


def test_a_final_message_is_continued_without_an_end_token(tmp_path: Path) -> None:
    model = _model(tmp_path)
    started = [*TALK, {"role": "assistant", "content": "he"}]
    ids = model.encode_chat(started, continue_final_message=True)
    assert model.decode(ids, skip_special_tokens=False).endswith("assistant\nhe")


def test_a_base_model_has_no_chat_but_completes(tmp_path: Path) -> None:
    model = _model(tmp_path, **{"tokenizer.chat_template": None})
    assert not model.has_chat_template
    with pytest.raises(UnsupportedFeature, match="no chat template"):
        model.encode_chat(TALK)
    assert model.decode(model.encode("hello")) == "hello"


def test_a_broken_template_is_found_when_the_model_is_opened(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not valid"):
        _model(tmp_path, **{"tokenizer.chat_template": "{% for %}"})


def test_streams_and_single_tokens(tmp_path: Path) -> None:
    model = _model(tmp_path)
    ids = model.encode("hello\n")
    stream = model.stream()
    assert "".join([stream.push((i,)) for i in ids]) + stream.flush() == "hello\n"
    assert b"".join([model.token_bytes(i) for i in ids]) == b"hello\n"
    assert model.token_text(2) == "<|im_end|>"
    assert model.vocab_size == model.tokenizer.vocab_size


def _hf_model(tmp_path: Path, **config: Any) -> TextModel:
    """A directory whose tokenizer.json is that of the tiny GGUF file."""
    directory = write_hf_directory(tmp_path / "hf", **config)
    vocabulary = GGUFVocabulary(read_gguf(write_gguf(tmp_path / "v.gguf")))
    build_from_gguf(vocabulary).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    return open_text_model(open_checkpoint(directory))


def test_end_tokens_are_those_of_the_configuration(tmp_path: Path) -> None:
    assert _hf_model(tmp_path, eos_token_id=[2, 0]).end_token_ids == (2, 0)


def test_without_any_in_the_configuration_the_tokenizers_eos_ends(tmp_path: Path) -> None:
    assert _hf_model(tmp_path, eos_token_id=None).end_token_ids == (0,)


def test_several_threads_may_use_one_model(tmp_path: Path) -> None:
    model = _model(tmp_path)
    texts = [f"hello {i} wörld " * (i + 1) for i in range(8)]
    results: dict[int, list[tuple[str, list[int]]]] = {i: [] for i in range(8)}

    def work(index: int) -> None:
        for _ in range(30):
            talk = [{"role": "user", "content": texts[index]}]
            ids = model.encode_chat(talk)
            results[index].append((model.decode(ids, skip_special_tokens=False), ids))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, seen in results.items():
        expected = model.render_chat([{"role": "user", "content": texts[index]}])
        assert len(seen) == 30
        assert all(text == expected and ids == seen[0][1] for text, ids in seen)

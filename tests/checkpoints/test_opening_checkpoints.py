"""What `open_checkpoint` makes of a model on disk, whatever its format, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.checkpoints import (
    GGUFVocabulary,
    SpecialTokens,
    TokenizerFile,
    open_checkpoint,
)
from steelyard.checkpoints.gguf_file import read_gguf
from steelyard.contract.errors import CheckpointError
from tests.checkpoints.builders import (
    CHAT_TEMPLATE,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    tiny_vocabulary,
    write_gguf,
    write_hf_directory,
)


def test_a_gguf_file_is_described_in_hugging_face_words(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    checkpoint = open_checkpoint(path)
    config = checkpoint.config
    assert (checkpoint.format, checkpoint.architecture, checkpoint.name) == (
        "gguf",
        "llama",
        "tiny",
    )
    assert config.hidden_size == HIDDEN
    assert config.num_hidden_layers == LAYERS
    assert (config.num_attention_heads, config.num_key_value_heads) == (HEADS, KV_HEADS)
    assert config.head_dim == HEAD_DIM
    assert config.rms_norm_eps == 1e-5
    assert config.rope_theta == 10_000.0
    assert config.rope_scaling is None
    assert config.tie_word_embeddings is True
    assert config.vocab_size == len(tiny_vocabulary()[0])
    assert (config.bos_token_id, config.eos_token_ids) == (1, (2,))
    assert checkpoint.chat_template == CHAT_TEMPLATE
    assert checkpoint.special_tokens == SpecialTokens(bos="<|im_start|>", eos="<|im_end|>")
    assert isinstance(checkpoint.vocabulary, GGUFVocabulary)


def test_gguf_tensors_get_hugging_face_names_shapes_and_their_place(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", with_output=True)
    checkpoint = open_checkpoint(path)
    file = read_gguf(path)
    expected = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
        "model.layers.1.input_layernorm.weight": "blk.1.attn_norm.weight",
        "model.layers.1.self_attn.q_proj.weight": "blk.1.attn_q.weight",
        "model.layers.1.self_attn.k_proj.weight": "blk.1.attn_k.weight",
        "model.layers.1.self_attn.v_proj.weight": "blk.1.attn_v.weight",
        "model.layers.1.self_attn.o_proj.weight": "blk.1.attn_output.weight",
        "model.layers.1.post_attention_layernorm.weight": "blk.1.ffn_norm.weight",
        "model.layers.1.mlp.gate_proj.weight": "blk.1.ffn_gate.weight",
        "model.layers.1.mlp.up_proj.weight": "blk.1.ffn_up.weight",
        "model.layers.1.mlp.down_proj.weight": "blk.1.ffn_down.weight",
    }
    for name, own_name in expected.items():
        entry, source = checkpoint.tensors[name], file.tensors[own_name]
        assert (entry.name, entry.file) == (name, path)
        assert (entry.shape, entry.dtype) == (source.shape, source.dtype)
        assert (entry.offset, entry.nbytes) == (source.offset, source.nbytes)
    assert checkpoint.tensors["model.layers.0.self_attn.k_proj.weight"].shape == (32, HIDDEN)
    assert checkpoint.config.tie_word_embeddings is False
    assert checkpoint.files == (path,)


@pytest.mark.parametrize(("architecture", "permuted"), [("llama", True), ("qwen3", False)])
def test_only_llama_files_have_their_query_rows_permuted(
    tmp_path: Path, architecture: str, permuted: bool
) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", architecture=architecture))
    assert checkpoint.qk_rows_permuted is permuted


def test_every_end_token_of_a_gguf_file_counts(tmp_path: Path) -> None:
    fields = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 2}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", fields=fields))
    assert checkpoint.config.eos_token_ids == (2, 5)


def test_rope_scaling_of_a_gguf_file_is_passed_on(tmp_path: Path) -> None:
    fields = {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 32,
    }
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", fields=fields))
    assert checkpoint.config.rope_scaling == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"general.architecture": "gemma3"}, "gemma3"),
        ({"split.count": 3}, "split"),
        ({"llama.rope.dimension_count": 8}, "rotated"),
        ({"llama.block_count": None}, "num_hidden_layers"),
        ({"llama.attention.head_count": 0}, "num_attention_heads"),
        ({"llama.attention.head_count_kv": 3}, "KV heads"),
        ({"llama.attention.head_count": [4, 4]}, "head_count"),
        ({"llama.rope.freq_base": float("nan")}, "rope_theta"),
        ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "rms_norm_eps"),
        ({"tokenizer.ggml.bos_token_id": 99_999}, "bos_token_id"),
    ],
)
def test_gguf_files_that_do_not_fit_are_refused_with_the_reason(
    tmp_path: Path, fields: dict[str, Any], reason: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", fields=fields)
    with pytest.raises(CheckpointError, match=reason) as caught:
        open_checkpoint(path)
    assert caught.value.param == str(path)


def test_the_real_model_has_its_published_dimensions(smollm2_path: Path) -> None:
    checkpoint = open_checkpoint(smollm2_path)
    config = checkpoint.config
    assert checkpoint.name == "smollm2-135m"
    assert (config.hidden_size, config.num_hidden_layers, config.head_dim) == (576, 30, 64)
    assert (config.num_attention_heads, config.num_key_value_heads) == (9, 3)
    assert (config.vocab_size, config.max_position_embeddings) == (49_152, 8_192)
    assert (config.rms_norm_eps, config.rope_theta) == (1e-5, 100_000.0)
    assert config.eos_token_ids == (2,)
    assert len(checkpoint.tensors) == 272
    assert {entry.dtype for entry in checkpoint.tensors.values()} == {"Q4_1", "Q8_0", "F32"}


def test_a_hugging_face_directory_is_described(tmp_path: Path) -> None:
    directory = write_hf_directory(tmp_path / "tiny-model", head_dim=32)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 2]}))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "x"})
    )
    checkpoint = open_checkpoint(directory)
    assert (checkpoint.name, checkpoint.format) == ("tiny-model", "safetensors")
    assert checkpoint.vocabulary == TokenizerFile(directory / "tokenizer.json")
    assert checkpoint.config.eos_token_ids == (7, 2)
    assert checkpoint.config.head_dim == 32
    assert checkpoint.special_tokens == SpecialTokens(bos="<s>", eos="</s>")
    assert checkpoint.chat_template == "x"
    assert checkpoint.qk_rows_permuted is False


def test_a_directory_with_one_gguf_file_is_that_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "only.gguf")
    assert open_checkpoint(tmp_path).path == path


def test_a_directory_with_two_gguf_files_asks_which(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        write_gguf(tmp_path / name)
    with pytest.raises(CheckpointError, match=r"a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_refused_with_reason_and_way_out(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04")
    with pytest.raises(CheckpointError, match="can run code") as caught:
        open_checkpoint(tmp_path)
    assert "safetensors" in caught.value.fix


def test_remote_code_is_refused_with_reason_and_way_out(tmp_path: Path) -> None:
    write_hf_directory(tmp_path, auto_map={"AutoModelForCausalLM": "modeling.Evil"})
    with pytest.raises(CheckpointError, match="never run") as caught:
        open_checkpoint(tmp_path)
    assert "auto_map" in caught.value.fix
    assert caught.value.param == str(tmp_path / "config.json")


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json"])
def test_a_directory_without_a_needed_file_is_refused(tmp_path: Path, missing: str) -> None:
    write_hf_directory(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(tmp_path)
    assert missing in str(caught.value)


def test_paths_that_hold_no_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hi")
    for path in (tmp_path / "empty", tmp_path / "text.txt", tmp_path / "missing"):
        with pytest.raises(CheckpointError) as caught:
            open_checkpoint(path)
        assert caught.value.param == str(path)


def test_a_directory_of_links_as_the_hub_cache_keeps_it_is_read(tmp_path: Path) -> None:
    blobs = write_hf_directory(tmp_path / "blobs")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(file)
    assert "model.norm.weight" in open_checkpoint(snapshot).tensors

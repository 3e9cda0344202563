"""Configurations become one checked description, whatever dialect they are written in."""

from pathlib import Path
from typing import Any

import pytest

from steelyard.checkpoints import ModelDescription
from steelyard.checkpoints.hf_config import describe_model
from steelyard.contract.errors import CheckpointError
from tests.checkpoints.builders import tiny_config


def _describe(generation: dict[str, Any] | None = None, **changes: Any) -> ModelDescription:
    return describe_model(
        tiny_config(**changes),
        generation=generation or {},
        has_output_matrix=False,
        where=Path("config.json"),
    )


def test_absent_values_get_the_defaults_of_hugging_face() -> None:
    config = _describe(num_key_value_heads=None, rope_theta=None, rms_norm_eps=None)
    assert config.num_key_value_heads == config.num_attention_heads
    assert config.head_dim == config.hidden_size // config.num_attention_heads
    assert (config.rope_theta, config.rms_norm_eps) == (10_000.0, 1e-6)


@pytest.mark.parametrize(
    ("changes", "theta", "scaling"),
    [
        ({"rope_theta": 5e5}, 5e5, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, 5e5, None),
        (
            {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
            5e5,
            {"rope_type": "linear", "factor": 2.0},
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e6, "factor": 8.0}},
            1e6,
            {"rope_type": "llama3", "factor": 8.0},
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
            1e4,
            {"rope_type": "per_layer_type", "full_attention": {"rope_theta": 1e6}},
        ),
    ],
)
def test_both_dialects_of_rope_are_understood(
    changes: dict[str, Any], theta: float, scaling: dict[str, Any] | None
) -> None:
    config = _describe(**changes)
    assert config.rope_theta == theta
    assert config.rope_scaling == scaling


def test_a_sliding_window_counts_only_when_it_is_used() -> None:
    assert _describe(sliding_window=64).sliding_window == 64
    assert _describe(sliding_window=64, use_sliding_window=False).sliding_window is None
    assert _describe(sliding_window=None).sliding_window is None


def test_the_generation_config_goes_before_the_models_end_tokens() -> None:
    assert _describe().eos_token_ids == (2,)
    assert _describe({"eos_token_id": [5, 6]}).eos_token_ids == (5, 6)
    assert _describe(eos_token_id=None).eos_token_ids == ()


def test_embeddings_are_tied_as_stated_else_as_the_tensors_show() -> None:
    def tied(stated: bool | None, has_output_matrix: bool) -> bool:
        return describe_model(
            tiny_config(tie_word_embeddings=stated),
            generation={},
            has_output_matrix=has_output_matrix,
            where=Path("config.json"),
        ).tie_word_embeddings

    assert [tied(None, True), tied(None, False)] == [False, True]
    assert [tied(True, True), tied(False, False)] == [True, False]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", None),
        ("hidden_size", 0),
        ("hidden_size", -64),
        ("hidden_size", 2**31),
        ("hidden_size", 64.0),
        ("hidden_size", True),
        ("hidden_size", "64"),
        ("num_key_value_heads", 3),
        ("vocab_size", None),
        ("rms_norm_eps", 0),
        ("rms_norm_eps", float("inf")),
        ("rope_theta", "big"),
        ("rope_scaling", "yarn"),
        ("sliding_window", -1),
        ("eos_token_id", -1),
        ("eos_token_id", "2"),
        ("eos_token_id", [[2]]),
        ("bos_token_id", 1.5),
    ],
)
def test_values_that_cannot_be_are_refused_with_file_and_key(key: str, value: Any) -> None:
    with pytest.raises(CheckpointError) as caught:
        _describe(**{key: value})
    assert caught.value.param == "config.json"
    assert key in caught.value.message or "KV heads" in caught.value.message

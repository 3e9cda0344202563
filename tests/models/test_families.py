"""Small random models of each family give the logits of Hugging Face transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from steelyard.contract.errors import CheckpointError
from steelyard.engine.step_batch import lay_out
from steelyard.models.registry import FAMILIES
from tests.models.engine_run import EngineRun, greedy

transformers = pytest.importorskip("transformers")
transformers.utils.logging.disable_progress_bar()

COMMON = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "llama-tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama-3.1": ("LlamaConfig", {"rope_parameters": LLAMA3}),
    "llama-linear": (
        "LlamaConfig",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
    ),
    "qwen3": ("Qwen3Config", {}),
    "qwen3-tied": ("Qwen3Config", {"tie_word_embeddings": True}),
}


def saved_model(name: str, folder: Path, shard_size: str = "1GB") -> Any:
    """A random model of transformers', saved to `folder` as a user would find it."""
    kind, options = CASES[name]
    torch.manual_seed(3)
    config = getattr(transformers, kind)(**{**COMMON, **options})
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    # Random initialisation is so small that logits hardly differ; scale it up.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0 if parameter.dim() > 1 else 1.0).add_(
                0.1 * torch.randn_like(parameter) if parameter.dim() == 1 else 0.0
            )
    model.save_pretrained(folder, max_shard_size=shard_size)
    (folder / "tokenizer.json").write_text("{}")  # engines work on token ids and never read it
    return model


def logits_of(engine: EngineRun, prompt: list[int]) -> torch.Tensor:
    scheduler = engine.new_scheduler()
    scheduler.submit(greedy("only", prompt, 1), 0.0)
    return engine.runner.logits(lay_out(scheduler.plan(0.0)))[0]


def edit_config(folder: Path, old: str, new: str) -> None:
    path = folder / "config.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_logits_are_those_of_transformers(
    name: str, kernels: str, tmp_path: Path, cache_dir: Path
) -> None:
    truth = saved_model(name, tmp_path)
    prompt = torch.randint(3, 256, (150,)).tolist()
    engine = EngineRun(tmp_path, cache_dir, precision="fp32", kernels=kernels)
    with torch.inference_mode():
        expected = truth(torch.tensor([prompt])).logits[0, -1]
        ours = logits_of(engine, prompt)
    assert float(expected.std()) > 0.1
    assert float((ours - expected).abs().max()) < 1e-3


def test_a_sharded_checkpoint_is_the_same_model(tmp_path: Path, cache_dir: Path) -> None:
    saved_model("qwen3", tmp_path / "one")
    saved_model("qwen3", tmp_path / "many", shard_size="50KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    prompt = list(range(3, 90))
    one, many = (
        logits_of(EngineRun(tmp_path / kind, cache_dir, precision="fp32"), prompt)
        for kind in ("one", "many")
    )
    assert torch.equal(one, many)


@pytest.mark.parametrize("precision", ["bf16", "int8", "int4"])
@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_smaller_precisions_stay_close(
    precision: str, kernels: str, tmp_path: Path, cache_dir: Path
) -> None:
    saved_model("llama", tmp_path)
    prompt = list(range(3, 90))
    exact = logits_of(EngineRun(tmp_path, cache_dir, precision="fp32"), prompt)
    engine = EngineRun(tmp_path, cache_dir, precision=precision, kernels=kernels)
    ours = logits_of(engine, prompt)
    allowed = {"bf16": 0.05, "int8": 0.05, "int4": 0.4}[precision]
    assert float((ours - exact).norm() / exact.norm()) < allowed


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path, cache_dir: Path) -> None:
    saved_model("llama", tmp_path)
    edit_config(tmp_path, '"model_type": "llama"', '"model_type": "gpt2"')
    with pytest.raises(CheckpointError, match="gpt2") as caught:
        EngineRun(tmp_path, cache_dir)
    assert all(family in str(caught.value) for family in FAMILIES)


def test_an_unknown_rotary_scaling_is_refused_by_name(tmp_path: Path, cache_dir: Path) -> None:
    saved_model("llama", tmp_path)
    edit_config(tmp_path, '"rope_type": "default"', '"rope_type": "yarn"')
    with pytest.raises(CheckpointError, match="yarn"):
        EngineRun(tmp_path, cache_dir)

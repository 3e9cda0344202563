"""In float32, greedy tokens are those of Hugging Face transformers, and logits agree to 1e-3.

SmolLM2 in the embedded engine against `transformers` on the same GGUF file: 20 prompts, 64 tokens
each. transformers reads each prompt with our tokens appended once; our tokens are its greedy ones
exactly if each is the most likely at its place.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from steelyard.engine.step_batch import lay_out
from tests.models.engine_run import EngineRun, greedy
from tests.models.prompts import PROMPTS

pytestmark = pytest.mark.slow

TOKENS = 64


@pytest.fixture(scope="module")
def truth(smollm2_path: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent,
        gguf_file=smollm2_path.name,
        quantization_config=transformers.GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    return model.eval()


@pytest.fixture(scope="module")
def prompts(smollm2_path: Path) -> list[list[int]]:
    from steelyard.checkpoints.checkpoint import open_checkpoint
    from steelyard.text.text_model import open_text_model

    text = open_text_model(open_checkpoint(smollm2_path))
    return [text.encode(prompt) for prompt in PROMPTS]


@pytest.fixture(scope="module", params=["native", "reference"])
def engine(request: pytest.FixtureRequest, smollm2_path: Path, cache_dir: Path) -> EngineRun:
    return EngineRun(smollm2_path, cache_dir, precision="fp32", kernels=request.param)


def test_greedy_tokens_and_logits_are_those_of_transformers(
    engine: EngineRun, truth: Any, prompts: list[list[int]]
) -> None:
    engine.new_scheduler()
    requests = [greedy(str(i), prompt, TOKENS) for i, prompt in enumerate(prompts)]
    for prompt, tokens in zip(prompts, engine.tokens(requests), strict=True):
        assert len(tokens) == TOKENS
        with torch.inference_mode():
            logits = truth(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == tokens


def test_logits_agree_to_a_thousandth(
    engine: EngineRun, truth: Any, prompts: list[list[int]]
) -> None:
    scheduler = engine.new_scheduler()
    for i, prompt in enumerate(prompts):
        scheduler.submit(greedy(str(i), prompt, 1), 0.0)
        with torch.inference_mode():
            ours = engine.runner.logits(lay_out(scheduler.plan(0.0)))
            expected = truth(torch.tensor([prompt])).logits[0, -1]
        assert float((ours[0] - expected).abs().max()) < 1e-3
        scheduler.abort(str(i))


def test_chunks_batches_and_cache_leave_the_tokens_as_they_are(
    engine: EngineRun, truth: Any, prompts: list[list[int]]
) -> None:
    some = [prompts[i] for i in (2, 10, 14)]
    engine.new_scheduler()
    together = engine.tokens([greedy(f"t{i}", prompt, 16) for i, prompt in enumerate(some)])
    cached = engine.tokens([greedy(f"c{i}", prompt, 16) for i, prompt in enumerate(some)])
    alone = [engine.tokens([greedy(f"a{i}", p, 16)])[0] for i, p in enumerate(some)]
    engine.new_scheduler(max_step_tokens=16, prefix_cache=False)
    chunked = engine.tokens([greedy(f"k{i}", prompt, 16) for i, prompt in enumerate(some)])
    assert together == cached == alone == chunked

"""vLLM itself, as it is installed: one server, started by `steelyard serve`, answers our door.

Two variables name it: STEELYARD_TEST_VLLM its Python, STEELYARD_TEST_VLLM_MODEL a directory with
SmolLM2-135M-Instruct in the layout of the Hugging Face hub. Starting takes a minute on a CPU.
"""

import os
from collections.abc import Iterator

import psutil
import pytest

from tests.cli.stage import REAL, Command, Stage, wait_for

pytestmark = pytest.mark.slow

PYTHON = os.environ.get("STEELYARD_TEST_VLLM")
MODEL = os.environ.get("STEELYARD_TEST_VLLM_MODEL")
START_S = 300.0
QUESTION = "What is the capital of France? Answer in one sentence."


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    if not PYTHON or not MODEL:
        pytest.skip("STEELYARD_TEST_VLLM and STEELYARD_TEST_VLLM_MODEL name no vLLM to test")
    stage = Stage(tmp_path_factory.mktemp("v"))
    settings = {
        "backend": "vllm",
        "vllm.python": PYTHON,
        "vllm.eager": "true",
        "served_name": "tiny",
        "engine.context_tokens": "1024",
        "batching.max_running": "8",
        "kv_cache.memory": "1GiB",
    }
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = stage.start("serve", MODEL, "--port", "0", *sets, program=REAL)
    command.await_stderr("is ready after", limit_s=START_S)
    yield command
    stage.clear()


def chat(service: Command, **fields: object) -> dict:
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 20, **fields}
    status, answer = service.ask("/v1/chat/completions", body)
    assert status == 200, answer
    return answer


def test_it_answers_a_chat_with_our_tokenizer(service: Command) -> None:
    answer = chat(service)
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["prompt_tokens"] == 42


def test_log_probabilities_are_its_own(service: Command) -> None:
    answer = chat(service, logprobs=True, top_logprobs=3, max_tokens=2)
    values = answer["choices"][0]["logprobs"]["content"]
    assert len(values) == 2
    assert values[0]["logprob"] == pytest.approx(values[0]["top_logprobs"][0]["logprob"])


def test_a_prompt_seen_before_is_cached(service: Command) -> None:
    prompt = "one two three four five six seven eight nine ten " * 30
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "temperature": 0}
    _, first = service.ask("/v1/completions", body)
    _, second = service.ask("/v1/completions", body)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= 128


def test_a_client_that_hangs_up_frees_its_sequence(service: Command) -> None:
    stream = service.stream(max_tokens=900, prompt="Tell me a long story.")
    stream.first()
    series = "steelyard_engine_running"
    wait_for(lambda: metric(service, series) == 1)
    stream.close()
    wait_for(lambda: metric(service, series) == 0)


def test_what_is_too_long_is_refused_by_name(service: Command) -> None:
    body = {"model": "tiny", "prompt": "word " * 2000, "max_tokens": 1}
    status, answer = service.ask("/v1/completions", body)
    assert status == 400
    assert answer["error"]["code"] == "context_length_exceeded"


def test_nothing_of_it_is_left_at_the_end(service: Command) -> None:
    family = psutil.Process(service.pid).children(recursive=True)
    assert any("vllm" in " ".join(process.cmdline()) for process in family)
    assert service.stop(limit_s=60) == 0
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


def metric(service: Command, name: str) -> float:
    _, page = service.ask("/metrics")
    lines = [line for line in page.splitlines() if line.startswith(name)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)

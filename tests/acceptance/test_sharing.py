"""Requests share prefixes and memory, and the metrics add up."""

from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from tests.cli.stage import wait_for

from .conftest import MODEL, Service

ENGINE = '{replica="0"}'


def prompt_of(tokens: int, seed: int) -> list[int]:
    """A prompt that nobody has seen before."""
    random = Random(seed)
    return [random.randrange(100, 40_000) for _ in range(tokens)]


def complete(service: Service, prompt: list[int], **more: Any) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 4, "temperature": 0, **more}
    status, answer = service.ask("/v1/completions", body)
    assert status == 200, answer
    return answer  # type: ignore[no-any-return]


def cached(answer: dict[str, Any]) -> int:
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_a_repeated_prompt_is_found_in_the_cache(service: Service) -> None:
    prompt = prompt_of(200, seed=1)
    first, second = complete(service, prompt), complete(service, prompt)
    assert cached(first) == 0
    assert 180 <= cached(second) < 200
    assert first["choices"] == second["choices"], "cached or not, the answer is the same"
    assert first["usage"]["prompt_tokens"] == second["usage"]["prompt_tokens"] == 200


def test_equal_prompts_at_once_are_computed_once(service: Service) -> None:
    prompt = prompt_of(1_400, seed=2)
    computed = service.metric(f"steelyard_engine_computed_tokens_total{ENGINE}")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: complete(service, prompt), range(4)))
    hits = sorted(map(cached, answers))
    assert hits[0] == 0 and hits[1] >= 1_300, hits
    spent = service.metric(f"steelyard_engine_computed_tokens_total{ENGINE}") - computed
    assert 1_400 <= spent < 1.3 * 1_400
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1


def test_a_client_that_hangs_up_frees_its_memory(service: Service) -> None:
    used = f"steelyard_engine_kv_blocks_used{ENGINE}"
    aborted = 'steelyard_engine_requests_ended_total{outcome="aborted",replica="0"}'
    before = service.metric(aborted)
    wait_for(lambda: service.metric(used) == 0)
    streams = [service.stream(model=MODEL, max_tokens=1_800) for _ in range(3)]
    for stream in streams:
        stream.first()
    assert service.metric(used) > 0
    for stream in streams:
        stream.close()
    wait_for(lambda: service.metric(used) == 0, limit_s=3)
    assert service.metric(f"steelyard_engine_running{ENGINE}") == 0
    assert service.metric(aborted) - before == 3


def test_metrics_account_for_every_request_and_token(service: Service) -> None:
    names = {
        "prompt": "steelyard_prompt_tokens_total",
        "cached": "steelyard_cached_tokens_total",
        "output": "steelyard_output_tokens_total",
    }

    def counts() -> dict[str, float]:
        return {key: service.metric(f'{name}{{model="{MODEL}"}}') for key, name in names.items()}

    before = counts()
    answers = [complete(service, prompt_of(40, seed), max_tokens=6) for seed in (3, 4, 3)]
    assert service.ask("/v1/completions", {"model": MODEL, "prompt": "x", "n": 0})[0] == 400
    after = counts()
    usages = [answer["usage"] for answer in answers]
    assert after["prompt"] - before["prompt"] == sum(usage["prompt_tokens"] for usage in usages)
    assert after["cached"] - before["cached"] == sum(map(cached, answers)) > 0
    assert after["output"] - before["output"] == sum(usage["completion_tokens"] for usage in usages)
    wait_for(lambda: received(service) == ended(service), limit_s=5)
    assert service.metric(f'steelyard_requests_in_flight{{model="{MODEL}"}}') == 0


def received(service: Service) -> float:
    return total(service, "steelyard_requests_received_total")


def ended(service: Service) -> float:
    return total(service, "steelyard_requests_ended_total")


def total(service: Service, name: str) -> float:
    """Of all series of a counter."""
    _, text = service.ask("/metrics")
    lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)

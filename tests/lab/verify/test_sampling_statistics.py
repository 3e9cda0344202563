"""The test of drawn tokens against their log-probabilities can be trusted."""

import math
import random

from steelyard.lab.verify.checks.sampling import surprise

SHARES = {"a": 0.5, "b": 0.2, "c": 0.1}
LOGPROBS = {text: math.log(share) for text, share in SHARES.items()}


def draw(count: int, seed: int, temperature: float = 1.0) -> list[str]:
    generator = random.Random(seed)
    weights = {**SHARES, **{f"rare{i}": 0.02 for i in range(10)}}
    heated = [share ** (1 / temperature) for share in weights.values()]
    return generator.choices(list(weights), heated, k=count)


def test_honest_draws_are_no_surprise() -> None:
    chances = sorted(surprise(LOGPROBS, draw(96, seed)) for seed in range(400))
    assert chances[0] > 1e-6
    # Roughly uniform, as chances of a true hypothesis are.
    assert 0.3 < chances[200] < 0.7


def test_greedy_draws_are_a_surprise() -> None:
    assert surprise(LOGPROBS, ["a"] * 96) < 1e-6


def test_draws_that_leave_out_all_rare_tokens_are_a_surprise() -> None:
    generator = random.Random(0)
    common = generator.choices(list(SHARES), list(SHARES.values()), k=96)
    assert surprise(LOGPROBS, common) < 1e-4
    assert surprise(LOGPROBS, common * 2) < 1e-6


def test_draws_at_another_temperature_are_a_surprise() -> None:
    assert sum(surprise(LOGPROBS, draw(96, seed, 0.3)) < 1e-6 for seed in range(50)) >= 48

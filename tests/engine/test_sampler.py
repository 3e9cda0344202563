"""Tokens are drawn from the distribution that was asked for, and only from that."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.engine.candidates import keep_candidates
from steelyard.engine.sampler import draw_tokens, uniform
from steelyard.scheduling.sequence import Sequence

VOCABULARY = 1000


def sequence(
    prompt: tuple[int, ...] = (1, 2, 3),
    output: tuple[int, ...] = (),
    end_ids: frozenset[int] = frozenset({0}),
    **sampling: object,
) -> Sequence:
    params = SamplingParams(**{"max_tokens": 50, **sampling})  # type: ignore[arg-type]
    request = GenerateRequest(
        request_id="r", prompt_ids=prompt, sampling=params, emitted_ids=output
    )
    return Sequence(request, end_token_ids=end_ids)


def draw(logits: Tensor, *sequences: Sequence) -> list[int]:
    return draw_tokens(logits.expand(len(sequences), -1).clone(), sequences)[0]


def random_logits(seed: int = 0, spread: float = 3.0) -> Tensor:
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * spread


def kept(logits: Tensor, **sampling: object) -> dict[int, float]:
    """Token id → probability after filtering."""
    params = SamplingParams(max_tokens=1, **sampling)  # type: ignore[arg-type]
    ids, weights = keep_candidates(logits, params)
    names = range(len(weights)) if ids is None else ids.tolist()
    total = float(weights.double().sum())
    return {int(i): float(w) / total for i, w in zip(names, weights, strict=True) if w > 0}


def kept_naively(logits: Tensor, top_k: int, top_p: float, min_p: float) -> dict[int, float]:
    """The definition: sort everything, cut three times."""
    probabilities = logits.double().softmax(-1)
    order = sorted(range(len(logits)), key=lambda i: -float(probabilities[i]))
    largest = float(probabilities[order[0]])
    order = [i for i in order if float(probabilities[i]) >= min_p * largest]
    order = order[:top_k] if top_k else order
    mass = sum(float(probabilities[i]) for i in order)
    chosen, before = [], 0.0
    for i in order:
        if top_p < 1.0 and chosen and before >= top_p * mass:
            break
        chosen.append(i)
        before += float(probabilities[i])
    total = sum(float(probabilities[i]) for i in chosen)
    return {i: float(probabilities[i]) / total for i in chosen}


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1000),
    spread=st.sampled_from([0.01, 0.5, 3.0, 30.0]),
    top_k=st.sampled_from([0, 1, 5, 300, 999, 5000]),
    top_p=st.sampled_from([0.001, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_filters_keep_what_their_definition_keeps(
    seed: int, spread: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = random_logits(seed, spread)
    ours = kept(logits, top_k=top_k, top_p=top_p, min_p=min_p)
    truth = kept_naively(logits, top_k, top_p, min_p)
    # On the border of a sum a token may fall on the other side by rounding; and single precision
    # has no room for the least likely of all.
    differing = [
        i for i in ours.keys() ^ truth.keys() if max(ours.get(i, 0), truth.get(i, 0)) > 1e-30
    ]
    assert len(differing) <= 1
    assert all(ours[i] == pytest.approx(truth[i], abs=2e-3) for i in ours.keys() & truth.keys())


def test_draws_follow_the_distribution() -> None:
    logits = torch.full((VOCABULARY,), -math.inf)
    logits[:4] = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    count = 4000
    drawn = [draw(logits, sequence(seed=seed))[0] for seed in range(count)]
    expected = [0.1 * count, 0.2 * count, 0.3 * count, 0.4 * count]
    chi_square = sum((drawn.count(i) - e) ** 2 / e for i, e in enumerate(expected))
    assert chi_square < 16.3  # p = 0.001 for three degrees of freedom; the seeds are fixed


def test_a_high_temperature_flattens_and_a_low_one_sharpens() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0]).repeat(1)
    hot = [draw(logits, sequence((1,), seed=s, temperature=50.0))[0] for s in range(300)]
    cold = [draw(logits, sequence((1,), seed=s, temperature=0.05))[0] for s in range(300)]
    assert min(hot.count(i) for i in range(3)) > 60
    assert cold.count(0) == 300


def test_the_draw_depends_on_seed_and_position_alone() -> None:
    logits = random_logits(spread=1.0)
    alone = [draw(logits, sequence(seed=5))[0] for _ in range(3)]
    crowd = draw(logits, *[sequence(seed=s) for s in (1, 5, 9)])
    assert set(alone) == {crowd[1]}
    elsewhere = {draw(logits, sequence(output=(7,) * n, seed=5))[0] for n in range(20)}
    assert len(elsewhere) > 5


@given(st.integers(-(2**63), 2**64), st.integers(0, 10**9))
def test_the_random_number_is_in_the_half_open_unit_interval(seed: int, position: int) -> None:
    assert 0.0 <= uniform(seed, position) < 1.0


def test_random_numbers_of_neighbouring_positions_and_seeds_are_unrelated() -> None:
    numbers = [uniform(s, p) for s in range(50) for p in range(50)]
    mean = sum(numbers) / len(numbers)
    assert abs(mean - 0.5) < 0.02
    pairs = sum((a - 0.5) * (b - 0.5) for a, b in itertools.pairwise(numbers))
    assert abs(pairs / len(numbers)) < 0.01


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    logits = torch.zeros(VOCABULARY)
    logits[[40, 7, 900]] = 1.0
    assert draw(logits, sequence(temperature=0.0)) == [7]
    assert draw(logits, sequence(temperature=0.0, logprobs=1)) == [7]


def test_a_bias_can_force_and_can_forbid_a_token() -> None:
    logits = random_logits()
    best = int(logits.argmax())
    assert draw(logits, sequence(temperature=0.0, logit_bias={123: 100.0})) == [123]
    assert draw(logits, sequence(temperature=0.0, logit_bias={best: -100.0})) != [best]


def test_repetition_penalty_covers_the_prompt_and_the_other_two_only_the_output() -> None:
    logits = torch.zeros(VOCABULARY)
    logits[1], logits[9], logits[20] = 5.0, 4.9, 4.8
    plain = sequence((1,), (9,), temperature=0.0)
    assert draw(logits, plain) == [1]
    assert draw(logits, sequence((1,), (9,), temperature=0.0, repetition_penalty=2.0)) == [20]
    assert draw(logits, sequence((1,), (9,), temperature=0.0, presence_penalty=2.0)) == [1]
    logits[1] = -9.0
    assert draw(logits, sequence((1,), (9,), temperature=0.0, presence_penalty=2.0)) == [20]


def test_frequency_penalty_grows_with_every_occurrence() -> None:
    logits = torch.zeros(VOCABULARY)
    logits[9], logits[20] = 3.0, 1.5
    penalised = {"temperature": 0.0, "frequency_penalty": 0.5}
    assert draw(logits, sequence((1,), (9, 9), **penalised)) == [9]
    assert draw(logits, sequence((1,), (9, 9, 9, 9), **penalised)) == [20]


def test_a_negative_logit_is_penalised_away_from_zero() -> None:
    logits = torch.full((VOCABULARY,), -10.0)
    logits[1], logits[2] = -1.0, -1.5
    assert draw(logits, sequence((1,), temperature=0.0, repetition_penalty=2.0)) == [2]


def test_end_tokens_are_not_drawn_before_the_minimum_length() -> None:
    logits = torch.zeros(VOCABULARY)
    logits[0], logits[5], logits[8] = 9.0, 8.0, 7.0
    short = {"temperature": 0.0, "min_tokens": 2, "stop_token_ids": (5,)}
    assert draw(logits, sequence(output=(3,), **short)) == [8]
    assert draw(logits, sequence(output=(3, 3), **short)) == [0]


def test_logprobs_describe_the_distribution_before_any_adjustment() -> None:
    logits = random_logits()
    truth = logits.double().log_softmax(-1)
    seq = sequence(temperature=0.0, logit_bias={123: 100.0}, logprobs=3)
    (token,), (logprobs,) = draw_tokens(logits[None].clone(), [seq])
    assert token == 123
    assert logprobs is not None
    assert logprobs.logprob == pytest.approx(float(truth[123]), abs=1e-4)
    assert list(logprobs.top_ids) == truth.topk(3).indices.tolist()
    assert logprobs.top_logprobs == pytest.approx(truth.topk(3).values.tolist(), abs=1e-4)


def test_logprobs_of_zero_alternatives_name_the_drawn_token_only() -> None:
    _, (logprobs,) = draw_tokens(random_logits()[None], [sequence(temperature=0.0, logprobs=0)])
    assert logprobs is not None
    assert logprobs.top_ids == ()


def test_requests_of_all_kinds_can_share_a_step() -> None:
    logits = random_logits()
    best = int(logits.argmax())
    tokens, logprobs = draw_tokens(
        logits.expand(3, -1).clone(),
        [
            sequence(temperature=0.0),
            sequence(seed=3, top_k=1),
            sequence(temperature=0.0, logprobs=2),
        ],
    )
    assert tokens == [best] * 3
    assert [described is not None for described in logprobs] == [False, False, True]

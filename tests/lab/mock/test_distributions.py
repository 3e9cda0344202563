"""Distributions have the mean and spread they are written with."""

import random
import statistics

import pytest

from steelyard.contract.errors import SettingsError
from steelyard.lab.mock.distributions import parse_distribution


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("20", 20, 0),
        ("uniform:10,30", 20, 20 / 12**0.5),
        ("normal:20,3", 20, 3),
        ("exponential:20", 20, 20),
        ("gamma:20,0.5", 20, 10),
        ("lognormal:20,0.5", 20, 10),
        ("gamma:20,0", 20, 0),
        ("lognormal:0,1", 0, 0),
    ],
)
def test_draws_have_the_written_moments(text: str, mean: float, deviation: float) -> None:
    distribution, generator = parse_distribution(text), random.Random(1)
    draws = [distribution.draw(generator) for _ in range(20_000)]
    assert distribution.mean == pytest.approx(mean)
    assert statistics.mean(draws) == pytest.approx(mean, rel=0.03)
    assert statistics.pstdev(draws) == pytest.approx(deviation, rel=0.05)


def test_draws_are_never_negative() -> None:
    generator = random.Random(1)
    assert min(parse_distribution("normal:1,5").draw(generator) for _ in range(1000)) == 0


def test_a_constant_takes_nothing_from_the_generator() -> None:
    generator = random.Random(1)
    parse_distribution(7).draw(generator)
    assert generator.random() == random.Random(1).random()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "gamma:20",
        "normal:1,2,3",
        "weibull:1,2",
        "-3",
        "nan",
        "inf",
        "uniform:3,1",
        True,
    ],
)
def test_anything_else_is_refused(text: object) -> None:
    with pytest.raises(SettingsError):
        parse_distribution(text)

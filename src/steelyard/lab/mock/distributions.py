"""Random durations and lengths, written as text: `20`, `normal:20,3`, `gamma:200,0.1`.

    CONSTANT               always the same
    uniform:LOW,HIGH       evenly between the two
    normal:MEAN,SD         negative draws become 0
    exponential:MEAN
    gamma:MEAN,CV          CV is the standard deviation divided by the mean
    lognormal:MEAN,CV

Units belong to the key that holds the distribution. Whoever draws brings the generator, so equal
seeds give equal draws.
"""

import math
import random
from collections.abc import Callable
from typing import NamedTuple

from steelyard.contract.errors import SettingsError

__all__ = ["Distribution", "parse_distribution"]

Draw = Callable[[random.Random], float]


class Distribution:
    """What `parse_distribution` understood; immutable, equal when written equally."""

    __slots__ = ("_draw", "is_constant", "mean", "text")

    def __init__(self, text: str, mean: float, draw: Draw, *, is_constant: bool) -> None:
        self.text = text
        self.mean = mean
        """Of the distribution as written, before negative draws become 0."""
        self.is_constant = is_constant
        self._draw = draw

    def draw(self, generator: random.Random) -> float:
        """One value, never negative. A constant does not touch `generator`."""
        return self.mean if self.is_constant else max(self._draw(generator), 0.0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def parse_distribution(value: object) -> Distribution:
    """Read a number or a text. Raises `SettingsError` with the shapes that exist."""
    text = str(value).strip()
    kind, colon, rest = text.partition(":")
    if isinstance(value, bool) or (colon and kind not in _KINDS):
        raise _unreadable(text)
    if not colon:
        kind, rest = "constant", text
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        raise _unreadable(text) from None
    shape = _KINDS[kind]
    if len(numbers) != shape.parameters or not all(0 <= n < math.inf for n in numbers):
        raise _unreadable(text)
    mean, draw = shape.make(*numbers)
    return Distribution(text, mean, draw, is_constant=kind == "constant")


class _Kind(NamedTuple):
    parameters: int
    make: Callable[..., tuple[float, Draw]]


def _constant(value: float) -> tuple[float, Draw]:
    return value, lambda generator: value


def _uniform(low: float, high: float) -> tuple[float, Draw]:
    if high < low:
        raise SettingsError(f"uniform:{low:g},{high:g} has its ends the wrong way round")
    return (low + high) / 2, lambda generator: generator.uniform(low, high)


def _normal(mean: float, deviation: float) -> tuple[float, Draw]:
    return mean, lambda generator: generator.gauss(mean, deviation)


def _exponential(mean: float) -> tuple[float, Draw]:
    return mean, lambda generator: mean * generator.expovariate(1.0)


def _gamma(mean: float, cv: float) -> tuple[float, Draw]:
    if mean == 0 or cv == 0:
        return _constant(mean)
    shape = 1 / cv**2
    return mean, lambda generator: generator.gammavariate(shape, mean / shape)


def _lognormal(mean: float, cv: float) -> tuple[float, Draw]:
    if mean == 0 or cv == 0:
        return _constant(mean)
    variance = math.log1p(cv**2)
    mu, sigma = math.log(mean) - variance / 2, math.sqrt(variance)
    return mean, lambda generator: generator.lognormvariate(mu, sigma)


_KINDS = {
    "constant": _Kind(1, _constant),
    "exponential": _Kind(1, _exponential),
    "gamma": _Kind(2, _gamma),
    "lognormal": _Kind(2, _lognormal),
    "normal": _Kind(2, _normal),
    "uniform": _Kind(2, _uniform),
}


def _unreadable(text: str) -> SettingsError:
    return SettingsError(
        f"{text!r} is no distribution",
        fix="write 20, uniform:10,30, normal:20,3, exponential:20, gamma:20,0.2 or "
        "lognormal:20,0.2",
    )

"""How long prompts and answers are: fixed, ranges, mixtures, or as seen elsewhere.

Counts of tokens; which tokens is the business of `prompts`.
"""

import re
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from steelyard.contract.errors import InvalidRequest

__all__ = [
    "ARTICLE_MIX",
    "Fixed",
    "Lengths",
    "Mixture",
    "Samples",
    "Share",
    "Uniform",
    "draw_lengths",
    "parse_lengths",
]

Counts = npt.NDArray[np.int64]

_Tokens = Annotated[int, msgspec.Meta(ge=1)]
_PART = re.compile(r"(?:(?P<share>[\d.]+)\*)?(?P<low>\d+)(?:-(?P<high>\d+))?")


class Fixed(msgspec.Struct, frozen=True, tag="fixed"):
    """Always the same."""

    tokens: _Tokens


class Uniform(msgspec.Struct, frozen=True, tag="uniform"):
    """Every length of a range, ends included, equally often."""

    low: _Tokens
    high: _Tokens


class Samples(msgspec.Struct, frozen=True, tag="samples"):
    """Lengths seen elsewhere, drawn with replacement."""

    tokens: Annotated[tuple[_Tokens, ...], msgspec.Meta(min_length=1)]


class Share(msgspec.Struct, frozen=True):
    """A part of a mixture."""

    weight: Annotated[float, msgspec.Meta(gt=0)]
    lengths: Fixed | Uniform | Samples


class Mixture(msgspec.Struct, frozen=True, tag="mixture"):
    """Parts by weight; drawn in exact proportion, so that two short runs have the same mix."""

    shares: Annotated[tuple[Share, ...], msgspec.Meta(min_length=1)]


Lengths = Fixed | Uniform | Samples | Mixture

ARTICLE_MIX = Mixture((Share(0.8, Uniform(32, 511)), Share(0.2, Uniform(2049, 4096))))
"""80 % short prompts, 20 % long ones: the traffic of the article behind the project."""


def draw_lengths(lengths: Lengths, count: int, random: np.random.Generator) -> Counts:
    """`count` lengths in tokens."""
    match lengths:
        case Fixed(tokens):
            return np.full(count, tokens, dtype=np.int64)
        case Uniform(low, high):
            return random.integers(low, high, size=count, endpoint=True)
        case Samples(tokens):
            return random.choice(np.asarray(tokens, dtype=np.int64), size=count)
        case Mixture(shares):
            parts = _apportion(np.array([share.weight for share in shares]), count)
            drawn = [
                draw_lengths(share.lengths, part, random)
                for share, part in zip(shares, parts, strict=True)
            ]
            return random.permutation(np.concatenate(drawn))


def parse_lengths(text: str) -> Lengths:
    """`128`, `64-512`, `0.8*32-511,0.2*2049-4096`, or `article` for that mix.

    Raises `InvalidRequest` when it reads otherwise.
    """
    if text == "article":
        return ARTICLE_MIX
    shares = [_share(part.strip()) for part in text.split(",")]
    if len(shares) == 1:
        return shares[0].lengths
    return Mixture(tuple(shares))


def _share(text: str) -> Share:
    match = _PART.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            f"{text!r} is no length", fix="write 128, 64-512, 0.8*32-511,0.2*2049-4096 or article"
        )
    low = int(match["low"])
    high = low if match["high"] is None else int(match["high"])
    weight = float(match["share"] or 1)
    if not 1 <= low <= high or weight <= 0:
        raise InvalidRequest(f"{text!r} is no length", fix="lengths begin at 1, weights above 0")
    return Share(weight, Fixed(low) if low == high else Uniform(low, high))


def _apportion(weights: npt.NDArray[np.float64], count: int) -> list[int]:
    """Whole numbers that add up to `count`, in proportion (largest remainders)."""
    exact = weights / weights.sum() * count
    parts = np.floor(exact).astype(int)
    by_remainder = np.argsort(parts - exact, kind="stable")
    parts[by_remainder[: count - parts.sum()]] += 1
    return [int(part) for part in parts]

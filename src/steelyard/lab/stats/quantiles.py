"""Quantiles of a series, with intervals that hold although its values depend on each other.

Latencies of neighbouring requests are alike (they share a queue), so treating them as independent
makes intervals far too narrow. The moving block bootstrap (Künsch, "The jackknife and the bootstrap
for general stationary observations", 1989) draws whole blocks of neighbours instead. How long a
block must be is read off the series (Politis and White, "Automatic block-length selection for the
dependent bootstrap", 2004; corrected 2009).
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = [
    "PERCENTILES",
    "Estimate",
    "Summary",
    "block_length",
    "bootstrap_counts",
    "quantile_estimates",
    "summarise",
]

Floats = npt.NDArray[np.float64]

PERCENTILES: tuple[float, ...] = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Those of every summary."""

_RESAMPLES = 1000
_CONFIDENCE = 0.95
_MOST_SEGMENTS = 512
"""Longer series are cut into so many runs of neighbours, which are then never torn apart."""
_MOST_CELLS = 4096
"""Values are put into as many cells of equal weight; up to so many values, each has its own."""


class Estimate(msgspec.Struct, frozen=True):
    """A number, and the interval that holds the true one with 95 % confidence."""

    value: float
    low: float | None = None
    """None: there are too few values to say."""
    high: float | None = None
    """None: there are too few values to say; the truth may be far above."""


class Summary(msgspec.Struct, frozen=True):
    """A distribution in a few numbers."""

    count: int
    mean: Estimate
    minimum: float
    maximum: float
    percentiles: dict[str, Estimate]
    """By name: `p50`, `p99`, `p99.9`."""


def summarise(values: Floats, *, seed: int = 0) -> Summary | None:
    """Of a series in the order of time. None when it has no values; NaNs are left out."""
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    resampling = _Resampling(values, seed)
    estimates = _quantile_estimates(values, [p / 100 for p in PERCENTILES], resampling)
    names = [f"p{p:g}" for p in PERCENTILES]
    return Summary(
        count=len(values),
        mean=_mean_estimate(values, resampling),
        minimum=float(values.min()),
        maximum=float(values.max()),
        percentiles=dict(zip(names, estimates, strict=True)),
    )


def quantile_estimates(
    values: Floats, quantiles: Sequence[float], *, seed: int = 0
) -> list[Estimate]:
    """Each quantile (linear between order statistics) of a series in the order of time."""
    return _quantile_estimates(values, quantiles, _Resampling(values, seed))


def block_length(values: Floats) -> int:
    """How many neighbours must stay together, by the series' own correlations; at least 1.

    Looks at whether values are above or below the median: the part of a series that moves its
    quantiles, and one that no outlier can dominate.
    """
    return _block_length((values > np.median(values)).astype(np.float64))


def bootstrap_counts(
    segments: int, block: int, *, resamples: int, random: np.random.Generator
) -> npt.NDArray[np.float32]:
    """(resamples, segments) how often each segment is drawn, when blocks of neighbours are."""
    block = min(block, segments)
    starts = segments - block + 1
    draws = random.integers(starts, size=(resamples, -(-segments // block)))
    # One more wherever a block begins, one less where it has ended; the sum is what covers a place.
    width = segments + 1
    places = draws + np.arange(resamples)[:, None] * width
    begun = np.bincount(places.ravel(), minlength=resamples * width)
    ended = np.bincount(places.ravel() + block, minlength=resamples * width)
    steps = (begun - ended).astype(np.float32).reshape(resamples, width)
    covered: npt.NDArray[np.float32] = np.cumsum(steps, axis=1)[:, :-1]
    return covered


class _Resampling:
    """How often each run of neighbours of a series is drawn, in every resample."""

    def __init__(self, values: Floats, seed: int) -> None:
        count = len(values)
        self.segments = min(count, _MOST_SEGMENTS)
        self.segment_of = np.arange(count) * self.segments // count
        above = (values > np.median(values)).astype(np.float64)
        sizes = np.bincount(self.segment_of, minlength=self.segments)
        levels = np.bincount(self.segment_of, weights=above, minlength=self.segments) / sizes
        self.drawn = bootstrap_counts(
            self.segments,
            _block_length(levels),
            resamples=_RESAMPLES,
            random=np.random.default_rng(seed),
        )
        self.sizes = sizes


def _quantile_estimates(
    values: Floats, quantiles: Sequence[float], resampling: _Resampling
) -> list[Estimate]:
    points = np.quantile(values, quantiles)
    if len(values) < 2:
        return [Estimate(float(point)) for point in points]
    drawn = _resampled_quantiles(values, np.asarray(quantiles), resampling)
    tail = (1 - _CONFIDENCE) / 2
    lows, highs = np.quantile(drawn, [tail, 1 - tail], axis=0)
    return [
        Estimate(float(point), *_bounds(quantile, len(values), float(low), float(high)))
        for quantile, point, low, high in zip(quantiles, points, lows, highs, strict=True)
    ]


def _resampled_quantiles(values: Floats, quantiles: Floats, resampling: _Resampling) -> Floats:
    """(resamples, quantiles)"""
    edges, cell_of = _cells(values)
    places = resampling.segment_of * len(edges) + cell_of
    shape = (resampling.segments, len(edges))
    histogram = np.bincount(places, minlength=shape[0] * shape[1]).astype(np.float32)
    weights = np.cumsum(resampling.drawn @ histogram.reshape(shape), axis=1)
    found = np.empty((_RESAMPLES, len(quantiles)))
    for row in range(_RESAMPLES):
        targets = quantiles * weights[row, -1]
        cells = np.searchsorted(weights[row], targets, side="left")
        found[row] = edges[np.minimum(cells, len(edges) - 1)]
    return found


def _cells(values: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
    """A representative value per cell, ascending, and the cell of each value."""
    ordered = np.sort(values)
    if len(ordered) > _MOST_CELLS:
        # Ranks that are dense in the upper tail, where percentiles are asked for.
        share = np.linspace(0, 1, _MOST_CELLS)
        ranks = (1 - (1 - share) ** 2) * (len(ordered) - 1)
        ordered = ordered[np.round(ranks).astype(np.intp)]
    edges = np.unique(ordered)
    return edges, np.minimum(np.searchsorted(edges, values, side="left"), len(edges) - 1)


def _bounds(
    quantile: float, count: int, low: float, high: float
) -> tuple[float | None, float | None]:
    """The interval, where the order statistics can hold one: with n values, the probability that
    the true quantile lies above all of them is q^n, below all of them (1 - q)^n."""
    tail = (1 - _CONFIDENCE) / 2
    has_low = (1 - quantile) ** count <= tail
    has_high = quantile**count <= tail
    return (low if has_low else None), (high if has_high else None)


def _mean_estimate(values: Floats, resampling: _Resampling) -> Estimate:
    mean = float(values.mean())
    if len(values) < 8:
        return Estimate(mean)
    sums = np.bincount(resampling.segment_of, weights=values, minlength=resampling.segments)
    means = (resampling.drawn @ sums) / (resampling.drawn @ resampling.sizes)
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(mean, float(low), float(high))


def _block_length(levels: Floats) -> int:
    """Politis and White's choice for the moving block bootstrap, at most a quarter of the whole."""
    count = len(levels)
    if count < 8:
        return 1
    covariances = _autocovariances(levels - levels.mean())
    if covariances[0] <= 0:
        return 1
    reach = _correlation_reach(covariances / covariances[0], count)
    lags = np.arange(-reach, reach + 1)
    window = np.clip(2 * (1 - np.abs(lags) / reach), 0, 1)  # flat, then falling to zero
    weighted = window * covariances[np.abs(lags)]
    spectrum, slope = float(np.sum(weighted)), float(np.sum(np.abs(lags) * weighted))
    if spectrum <= 0:
        return 1
    length = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * count ** (1 / 3)
    return int(np.clip(math.ceil(length), 1, max(count // 4, 1)))


def _autocovariances(centred: Floats) -> Floats:
    """At every lag, through the Fourier transform."""
    count = len(centred)
    spectrum = np.fft.rfft(centred, 2 * count)
    covariances: Floats = np.fft.irfft(np.abs(spectrum) ** 2)[:count] / count
    return covariances


def _correlation_reach(correlations: Floats, count: int) -> int:
    """Twice the lag after which correlations stay within noise (Politis and White's rule)."""
    stays = max(5, math.ceil(math.sqrt(math.log10(count))))
    longest = min(math.ceil(math.sqrt(count)) + stays, count - stays - 1)
    noise = 2 * math.sqrt(math.log10(count) / count)
    is_noise = np.abs(correlations[1 : longest + stays + 1]) < noise
    for lag in range(longest):
        if is_noise[lag : lag + stays].all():
            return max(2 * lag, 1)
    return max(longest, 1)

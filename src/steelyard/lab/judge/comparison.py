"""A comparison of two sides as data: every percentile with its difference, and plain words.

A verdict is one of four. *Worse* and *better* need an interval that leaves out zero and is not
inside the margin; *alike* an interval inside the margin; everything else is *undecided*, and says
how much more must be measured. `contrasts` has the statistics, `stored` and `blocks` the numbers.
"""

import enum
import math
from collections.abc import Mapping, Sequence

import msgspec

from steelyard.lab.judge.contrasts import Contrast
from steelyard.lab.stats import Estimate

__all__ = [
    "COMPARISON_SCHEMA",
    "Comparison",
    "Difference",
    "Measure",
    "Side",
    "Verdict",
    "comparison_json",
    "judge",
    "overall",
    "relative",
]

COMPARISON_SCHEMA = "steelyard.bench.comparison/1"


class Verdict(enum.Enum):
    """What may be said of B against A."""

    WORSE = "worse"
    BETTER = "better"
    ALIKE = "alike"
    UNDECIDED = "undecided"


class Measure(msgspec.Struct, frozen=True):
    """A number that both sides have: a percentile of a latency, or a rate."""

    metric: str
    statistic: str
    """`p50`, `p99`; `mean` for rates."""
    more_is_better: bool = False

    def __str__(self) -> str:
        return self.metric if self.statistic == "mean" else f"{self.metric} {self.statistic}"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a comparison."""

    metric: str
    statistic: str
    left: float
    right: float
    change: Estimate
    """B over A minus one, with an interval that holds together with those of all other rows."""
    detectable: float | None
    """Smallest change that would have been found in four of five such comparisons. None: too few
    values for an interval."""
    verdict: Verdict
    words: str
    """The verdict in words, with numbers."""
    needs_more: int | None = None
    """Undecided: so many more units. None: decided, or nobody can say."""

    @property
    def name(self) -> str:
        return self.metric if self.statistic == "mean" else f"{self.metric} {self.statistic}"


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared."""

    label: str
    fingerprint: str = ""
    """Its digest. Empty: measured live."""
    runs: int
    """Runs or blocks."""
    requests: int
    """That the latencies are made of."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. A is `left`, what B is held against."""

    schema: str = COMPARISON_SCHEMA
    left: Side
    right: Side
    method: str
    """How it was compared, for people."""
    unit: str
    """What more of is needed where it is undecided."""
    margin: float
    """Differences up to this share do not matter."""
    verdict: Verdict
    words: str
    is_valid: bool
    reasons: list[str]
    """Why it is not valid."""
    caveats: list[str]
    """What is to be known before it is believed."""
    unlike: list[str]
    """Parts of the fingerprints that differ, as allowed."""
    differences: list[Difference]


def judge(
    series: Sequence[Measure],
    values: Sequence[tuple[float, float]],
    contrasts: Sequence[Contrast | None],
    *,
    margin: float,
    unit: str,
) -> list[Difference]:
    """One row per series."""
    return [
        _row(one, pair, contrast, margin=margin, unit=unit)
        for one, pair, contrast in zip(series, values, contrasts, strict=True)
    ]


def overall(differences: Sequence[Difference], margin: float, unit: str) -> tuple[Verdict, str]:
    """Of all rows together: worse if one is, for nobody gains by a better median alone."""
    named: Mapping[Verdict, list[Difference]] = {
        verdict: [row for row in differences if row.verdict is verdict] for verdict in Verdict
    }
    worse, better, open_rows = (
        named[verdict] for verdict in (Verdict.WORSE, Verdict.BETTER, Verdict.UNDECIDED)
    )
    if worse:
        words = f"worse: {_list(worse)}"
        return Verdict.WORSE, words + (f"; better: {_list(better)}" if better else "")
    if better:
        return Verdict.BETTER, f"better: {_list(better)}"
    if open_rows or not differences:
        more = [row.needs_more for row in open_rows if row.needs_more is not None]
        needs = f", needs {max(more)} more {unit}" if more else ""
        names = ", ".join(row.name for row in open_rows) or "nothing could be compared"
        return Verdict.UNDECIDED, f"undecided{needs} ({names})"
    bound = max(
        abs(end)
        for row in differences
        for end in (row.change.low, row.change.high)
        if end is not None
    )
    return Verdict.ALIKE, f"no difference larger than {relative(bound)} (asked: {margin:.0%})"


def comparison_json(comparison: Comparison) -> bytes:
    """Everything, indented."""
    return msgspec.json.format(msgspec.json.encode(comparison), indent=1) + b"\n"


def relative(share: float) -> str:
    """0.0312: `3.1 %`."""
    return f"{share * 100:.{0 if abs(share) >= 1 else 1}f} %"


def _row(
    series: Measure,
    pair: tuple[float, float],
    contrast: Contrast | None,
    *,
    margin: float,
    unit: str,
) -> Difference:
    left, right = pair
    if contrast is None:
        change = Estimate(right / left - 1 if left else 0.0)
        verdict, words, more = Verdict.UNDECIDED, "undecided: too few values for an interval", None
    else:
        change = contrast.change
        verdict = _verdict(contrast, margin, more_is_better=series.more_is_better)
        more = None
        if verdict is Verdict.UNDECIDED:
            more = max(contrast.units_for(margin) - contrast.units, 1)
        words = _words(verdict, contrast, more, unit)
    return Difference(
        metric=series.metric,
        statistic=series.statistic,
        left=left,
        right=right,
        change=change,
        detectable=None if contrast is None else contrast.detectable,
        verdict=verdict,
        words=words,
        needs_more=more,
    )


def _verdict(contrast: Contrast, margin: float, *, more_is_better: bool) -> Verdict:
    reach = math.log1p(margin)
    if -reach < contrast.low and contrast.high < reach:
        return Verdict.ALIKE
    if contrast.low > 0:
        return Verdict.BETTER if more_is_better else Verdict.WORSE
    if contrast.high < 0:
        return Verdict.WORSE if more_is_better else Verdict.BETTER
    return Verdict.UNDECIDED


def _words(verdict: Verdict, contrast: Contrast, more: int | None, unit: str) -> str:
    change = contrast.change
    if verdict is Verdict.UNDECIDED:
        return f"undecided: needs {more} more {unit}"
    if verdict is Verdict.ALIKE:
        assert change.low is not None
        assert change.high is not None
        bound = max(abs(change.low), abs(change.high))
        return f"no difference larger than {relative(bound)}"
    return f"{verdict.value} by {relative(abs(change.value))}"


def _list(rows: Sequence[Difference]) -> str:
    return ", ".join(f"{row.name} {row.change.value:+.1%}" for row in rows)

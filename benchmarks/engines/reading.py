"""Questions to a campaign's results that tables and targets both ask."""

from dataclasses import dataclass

from benchmarks.engines.costs import ModelSize, best_tokens_per_s
from benchmarks.engines.engine import WeightBits
from benchmarks.engines.figures import Ratio, Spread, ratio_of, spread_of
from benchmarks.engines.record import Described, Results, Row
from benchmarks.engines.roofline import Roofline

__all__ = ["Best", "Reading"]

_MEAN_CONTEXT_TOKENS = 128 + 128 / 2
"""Of the closed loops."""


@dataclass(frozen=True, slots=True)
class Best:
    """Which of several engines has the greatest median."""

    key: str
    spread: Spread
    by_round: dict[int, float]


class Reading:
    """Reads only; `results` stay as they were measured."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.ours = [engine for engine in results.engines if engine.family == "steelyard"]
        self.peers = [engine for engine in results.engines if engine.family != "steelyard"]
        self.concurrencies = sorted({r.concurrency for r in results.rows if r.scenario == "decode"})
        self.roofline = _best_roofline(results.rooflines)

    def engine(self, key: str) -> Described | None:
        """None when it was not measured."""
        return next((one for one in self.results.engines if one.key == key), None)

    def spread(
        self, scenario: str, key: str, figure: str, concurrency: int | None = None
    ) -> Spread | None:
        """Over rounds; None where nothing valid was measured."""
        values = self.results.by_round(scenario, key, figure, concurrency)
        return spread_of(list(values.values())) if values else None

    def best(
        self, engines: list[Described], scenario: str, figure: str, concurrency: int | None = None
    ) -> Best | None:
        """The engine with the greatest median."""
        found = []
        for engine in engines:
            values = self.results.by_round(scenario, engine.key, figure, concurrency)
            if values:
                found.append(Best(engine.key, spread_of(list(values.values())), values))
        return max(found, key=lambda best: best.spread.median, default=None)

    def ratio(
        self, key: str, rival: Best | None, scenario: str, figure: str, concurrency: int | None
    ) -> Ratio | None:
        """Of `key` to a rival."""
        values = self.results.by_round(scenario, key, figure, concurrency)
        return ratio_of(values, rival.by_round) if values and rival is not None else None

    def roofline_share(self, engine: Described, concurrency: int) -> Spread | None:
        """(concurrency / median ITL) over the bound; None without a roofline."""
        bound = self.bound(engine, concurrency)
        values = self.results.by_round("decode", engine.key, "itl_p50_ms", concurrency)
        if bound is None or not values:
            return None
        return spread_of([1e3 * concurrency / itl_ms / bound for itl_ms in values.values()])

    def bound(self, engine: Described, concurrency: int) -> float | None:
        """Tokens per second that the machine could do at best."""
        if self.roofline is None:
            return None
        return best_tokens_per_s(
            ModelSize(**self.results.model),
            WeightBits(engine.layer_bits, engine.head_bits, engine.dot, engine.kv_bytes),
            self.roofline,
            batch=concurrency,
            context_tokens=_MEAN_CONTEXT_TOKENS,
        )

    def pooled(self, scenario: str, key: str, name: str, concurrency: int) -> list[float]:
        """All single values of all rounds."""
        rows = self.results.of(scenario, key, concurrency)
        return [value for row in rows for value in row.lists.get(name, [])]

    def invalid(self) -> list[Row]:
        """Rows whose answers were wrong."""
        return [row for row in self.results.rows if row.faults]


def _best_roofline(rooflines: list[Roofline]) -> Roofline | None:
    """A bound is what the machine did at its best."""
    if not rooflines:
        return None
    names = rooflines[0].rates
    return Roofline(
        threads=rooflines[0].threads,
        bytes_per_s=max(one.bytes_per_s for one in rooflines),
        rates={name: max(one.rates[name] for one in rooflines) for name in names},
        method=rooflines[0].method,
    )

"""The targets of the comparison: what is wanted, what was reached, and the verdict."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.engines.figures import Ratio, Spread, spread_of
from benchmarks.engines.reading import Best, Reading

__all__ = ["Verdict", "judge"]

PRIMARY = "ours-auto"
_AUTO_WANTED = {1: 1.0, 2: 1.5, 4: 1.5, 8: 1.2, 16: 1.1}
_ROOFLINE_WANTED = (("ours-bf16", 1, 0.60), ("ours-bf16", 16, 0.35), ("ours-int8", 1, 0.45))
_GIB = 1 << 30
_PREFIX_COMPUTED = 1400 + 4 * 100
_BLOCK_SLACK = 4 * 16
"""Whole blocks are shared: the last one of the prefix may be computed by each of the four."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the table."""

    what: str
    wanted: str
    reached: str
    verdict: str


def judge(reading: Reading) -> list[Verdict]:
    """Every target, measured or not."""
    return [
        *_against_peers(reading),
        *_roofline(reading),
        _warm_prefix(reading),
        _shared_once(reading),
        *_arrival(reading),
        _memory(reading),
        _ready(reading),
        _overhead(reading),
        _scheduler(reading),
    ]


def _against_peers(reading: Reading) -> Iterator[Verdict]:
    for concurrency in reading.concurrencies:
        rival = reading.best(reading.peers, "decode", "tokens_per_s", concurrency)
        ratio = reading.ratio(PRIMARY, rival, "decode", "tokens_per_s", concurrency)
        what = f"output tokens/s at {concurrency}, auto against the best peer"
        yield _ratio_verdict(what, ratio, _AUTO_WANTED.get(concurrency, 1.0), rival)
    bf16_peers = [peer for peer in reading.peers if peer.precision.lower() == "bf16"]
    for concurrency in reading.concurrencies:
        rival = reading.best(bf16_peers, "decode", "tokens_per_s", concurrency)
        ratio = reading.ratio("ours-bf16", rival, "decode", "tokens_per_s", concurrency)
        what = f"output tokens/s at {concurrency}, all in bf16"
        yield _ratio_verdict(what, ratio, 1.0, rival)
    for concurrency in (1, 4):
        rival = reading.best(reading.peers, "prefill", "prompt_tokens_per_s", concurrency)
        ratio = reading.ratio(PRIMARY, rival, "prefill", "prompt_tokens_per_s", concurrency)
        what = f"prefill tokens/s, {concurrency} at a time, against the best peer"
        yield _ratio_verdict(what, ratio, 1.0, rival)


def _ratio_verdict(what: str, ratio: Ratio | None, wanted: float, rival: Best | None) -> Verdict:
    if ratio is None or rival is None:
        return _unmeasured(what, f"≥ {wanted:.1f}×")
    reached = f"{ratio.value:.2f}× [{ratio.low:.2f}, {ratio.high:.2f}] ({rival.key})"
    return Verdict(
        what, f"≥ {wanted:.1f}×", reached, _at_least(ratio.value, ratio.low, ratio.high, wanted)
    )


def _roofline(reading: Reading) -> Iterator[Verdict]:
    for key, concurrency, wanted in _ROOFLINE_WANTED:
        what = f"share of the roofline, {key.removeprefix('ours-')} at {concurrency}"
        engine = reading.engine(key)
        share = None if engine is None else reading.roofline_share(engine, concurrency)
        yield _spread_verdict(what, share, lambda v: f"{v:.0%}", least=wanted)


def _warm_prefix(reading: Reading) -> Verdict:
    share = reading.spread("prefix", PRIMARY, "warm_share", 1)
    what = "TTFT with a shared prefix, warm against cold"
    return _spread_verdict(what, share, lambda v: f"{v:.2f}×", most=0.2)


def _shared_once(reading: Reading) -> Verdict:
    computed = reading.spread("prefix at once", PRIMARY, "computed_tokens", 4)
    return _spread_verdict(
        "four such requests at once when cold: prompt tokens computed (6,000 sent)",
        computed,
        lambda v: f"{v:,.0f}",
        most=_PREFIX_COMPUTED + _BLOCK_SLACK,
    )


def _arrival(reading: Reading) -> Iterator[Verdict]:
    """By the wording, and stricter: against the streams as they were before."""
    for figure, what in (
        ("during_p50_ms", "ITL p99 / p50 of running streams while a 1,500-token prompt arrives"),
        ("before_p50_ms", "the same p99 against the p50 before it arrived (stricter)"),
    ):
        late = reading.results.by_round("arrival", PRIMARY, "during_p99_ms", 4)
        usual = reading.results.by_round("arrival", PRIMARY, figure, 4)
        ratios = [late[number] / usual[number] for number in late.keys() & usual.keys()]
        spread = spread_of(ratios) if ratios else None
        yield _spread_verdict(what, spread, lambda v: f"{v:.2f}×", most=3.0)


def _memory(reading: Reading) -> Verdict:
    rows = reading.results.of("memory", PRIMARY)
    spread = None
    if rows:
        gib = max(rows[0].figures["pss_bytes"], rows[0].figures["alone_bytes"]) / _GIB
        spread = Spread(gib, gib, gib, 1)
    return _spread_verdict(
        "memory of the whole service", spread, lambda v: f"{v:.2f} GiB", most=1.2
    )


def _ready(reading: Reading) -> Verdict:
    ready = reading.spread("ready", PRIMARY, "ready_s")
    return _spread_verdict("ready (first answer) after", ready, lambda v: f"{v:.1f} s", most=8.0)


def _overhead(reading: Reading) -> Verdict:
    what = "overhead of door and wire at 16 (whole run)"
    served = reading.results.by_round("overhead", PRIMARY, "whole_tokens_per_s", 16)
    bare = reading.results.by_round("overhead", "bare", "whole_tokens_per_s", 16)
    pairs = sorted(1 - served[number] / bare[number] for number in served.keys() & bare.keys())
    if not pairs:
        return _unmeasured(what, "≤ 8%")
    middle = pairs[len(pairs) // 2]
    spread = Spread(middle, pairs[0], pairs[-1], len(pairs))
    return _spread_verdict(what, spread, lambda v: f"{v:.1%}", most=0.08)


def _scheduler(reading: Reading) -> Verdict:
    rows = [row for row in reading.results.rows if row.scenario == "scheduler"]
    what = "scheduler per step with 1,000 running requests, p50 of its worst load"
    if not rows:
        return _unmeasured(what, "≤ 5.0 ms")
    values = [row.figures["step_p50_ms"] for row in rows]
    spread = Spread(max(values), min(values), max(values), len(values))
    return _spread_verdict(what, spread, lambda v: f"{v:.1f} ms", most=5.0)


def _spread_verdict(
    what: str,
    spread: Spread | None,
    show: Callable[[float], str],
    *,
    least: float | None = None,
    most: float | None = None,
) -> Verdict:
    """Exactly one of `least` and `most` is given."""
    wanted = f"≥ {show(least)}" if least is not None else f"≤ {show(most or 0.0)}"
    if spread is None:
        return _unmeasured(what, wanted)
    reached = show(spread.median)
    if spread.low != spread.high:
        reached += f" [{show(spread.low)}, {show(spread.high)}]"
    if least is not None:
        return Verdict(
            what, wanted, reached, _at_least(spread.median, spread.low, spread.high, least)
        )
    return Verdict(
        what, wanted, reached, _at_least(-spread.median, -spread.high, -spread.low, -(most or 0.0))
    )


def _at_least(value: float, low: float, high: float, wanted: float) -> str:
    """With a hint where single rounds say otherwise."""
    if value >= wanted:
        return "reached" if low >= wanted else "reached (not in every round)"
    return "missed" if high < wanted else "missed (reached in some rounds)"


def _unmeasured(what: str, wanted: str) -> Verdict:
    return Verdict(what, wanted, "–", "not measured")

"""The report's tables, each a function from a reading to lines of Markdown."""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.engines.figures import Spread, quantile, spread_of
from benchmarks.engines.greedy_answers import REFERENCE, compare
from benchmarks.engines.reading import Reading
from benchmarks.engines.record import DISTURBANCE, Row
from benchmarks.engines.targets import PRIMARY

__all__ = [
    "answers",
    "arrival",
    "batch_curve",
    "latency",
    "memory_and_start",
    "prefill",
    "prefix",
    "roofline",
    "setting",
    "table",
    "throughput",
    "trust",
]

_NONE = "–"
_MIB = 1 << 20


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """One Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def setting(reading: Reading) -> Iterator[str]:
    """Machine, versions, engines."""
    facts, plan = reading.results.facts, reading.results.plan
    caches = ", ".join(f"{name} {size}" for name, size in facts.caches.items())
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items())
    kind = "virtual machine" if facts.hypervisor else "machine"
    yield f"{facts.date}, commit {facts.commit}. {facts.cpu_model}, {facts.cpus} CPUs ({kind}),"
    yield f"{caches}, {facts.memory_gib:g} GiB, {facts.kernel}, huge pages {facts.huge_pages};"
    yield f"Python {facts.python}, {versions}."
    for more in reading.results.more_facts:
        yield f"Further rounds of our own servers: {more.date}, commit {more.commit}."
    yield ""
    yield f"{plan['threads']} compute threads for every engine, contexts of"
    yield f"{plan['context_tokens']} tokens, {len(reading.results.rooflines)} rounds (engines in"
    yield "turn, the order rotating); all servers but the one under load are stopped (SIGSTOP)."
    yield "Model: SmolLM2-135M-Instruct in Q4_1."
    yield ""
    yield from table(
        ("engine", "precision", "settings that are not default"),
        [(e.key, e.precision, f"`{e.settings}`") for e in reading.results.engines],
    )


def throughput(reading: Reading) -> Iterator[str]:
    """Engines by concurrency, and our ratio to the best peer."""
    head = ("engine", *(str(c) for c in reading.concurrencies))
    rows = [
        (
            engine.key,
            *(
                _spread(reading.spread("decode", engine.key, "tokens_per_s", c), "{:.0f}")
                for c in reading.concurrencies
            ),
        )
        for engine in reading.results.engines
    ]
    for engine in reading.ours:
        cells = []
        for c in reading.concurrencies:
            rival = reading.best(reading.peers, "decode", "tokens_per_s", c)
            ratio = reading.ratio(engine.key, rival, "decode", "tokens_per_s", c)
            cells.append(
                f"{ratio.value:.2f}× [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio else _NONE
            )
        if reading.peers:
            rows.append((f"**{engine.key} / best peer**", *cells))
    yield from table(head, rows)


def batch_curve(reading: Reading) -> Iterator[str]:
    """What a user of ours gets at each batch size; single requests of all rounds pooled."""
    rows = []
    for c in reading.concurrencies:
        rate = reading.spread("decode", PRIMARY, "tokens_per_s", c)
        latencies = reading.pooled("decode", PRIMARY, "latency_ms", c)
        if rate is None:
            continue
        rows.append(
            (
                str(c),
                _spread(rate, "{:.0f}"),
                f"{quantile(latencies, 0.5) / 1e3:.2f} s",
                f"{quantile(latencies, 0.99) / 1e3:.2f} s",
                _spread(reading.spread("decode", PRIMARY, "itl_p50_ms", c), "{:.2f} ms"),
                _spread(reading.spread("decode", PRIMARY, "itl_p99_ms", c), "{:.2f} ms"),
                _mib(reading.spread("decode", PRIMARY, "memory_bytes", c)),
            )
        )
    head = ("batch", "tokens/s", "P50", "P99", "P50 per token", "P99 per token", "memory")
    yield f"{PRIMARY}; P50 and P99 of a whole request, then of the time between tokens."
    yield ""
    yield from table(head, rows)


def latency(reading: Reading) -> Iterator[str]:
    """TTFT and ITL of every engine at every concurrency."""
    rows = []
    for engine in reading.results.engines:
        cells = []
        for c in reading.concurrencies:
            parts = [
                reading.spread("decode", engine.key, figure, c)
                for figure in ("ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms")
            ]
            first, last, middle, tail = (p.median if p else float("nan") for p in parts)
            cells.append(f"{first:.0f} / {last:.0f}; {middle:.2f} / {tail:.1f}")
        rows.append((engine.key, *cells))
    yield from table(("engine", *(str(c) for c in reading.concurrencies)), rows)


def prefill(reading: Reading) -> Iterator[str]:
    """Prompt tokens per second."""
    rows = [
        (
            engine.key,
            *(
                _spread(reading.spread("prefill", engine.key, "prompt_tokens_per_s", c), "{:.0f}")
                for c in (1, 4)
            ),
        )
        for engine in reading.results.engines
    ]
    yield "Prompt tokens per second, 1,500-token prompts like no other."
    yield ""
    yield from table(("engine", "one at a time", "four at once"), rows)


def roofline(reading: Reading) -> Iterator[str]:
    """(concurrency / median ITL) over what the machine could do at best."""
    best = reading.roofline
    if best is None:
        yield "Not measured."
        return
    rates = ", ".join(f"{name} {rate / 1e9:.0f} G/s" for name, rate in best.rates.items())
    yield f"{best.bytes_per_s / 1e9:.1f} GB/s; dot products: {rates} on {best.threads} threads"
    yield f"({best.method}). Per cell: share, and the bound in tokens/s."
    if more := [one.bytes_per_s / 1e9 for one in reading.results.more_rooflines]:
        yield f"While the further rounds ran, memory gave {min(more):.1f} to {max(more):.1f} GB/s."
    yield ""
    rows = []
    for engine in reading.results.engines:
        cells = []
        for c in reading.concurrencies:
            share, bound = reading.roofline_share(engine, c), reading.bound(engine, c)
            cells.append(f"{share.median:.0%} of {bound:.0f}" if share and bound else _NONE)
        rows.append((engine.key, *cells))
    yield from table(("engine", *(str(c) for c in reading.concurrencies)), rows)


def prefix(reading: Reading) -> Iterator[str]:
    """TTFT cold and warm; four at once."""
    rows = []
    for engine in reading.results.engines:
        key = engine.key
        rows.append(
            (
                key,
                _spread(reading.spread("prefix", key, "cold_ttft_ms", 1), "{:.0f} ms"),
                _spread(reading.spread("prefix", key, "warm_ttft_ms", 1), "{:.0f} ms"),
                _spread(reading.spread("prefix", key, "warm_share", 1), "{:.2f}×"),
                _spread(reading.spread("prefix at once", key, "last_ttft_ms", 4), "{:.0f} ms"),
                _spread(reading.spread("prefix at once", key, "computed_tokens", 4), "{:.0f}"),
            )
        )
    yield from table(
        (
            "engine",
            "TTFT cold",
            "TTFT warm",
            "warm / cold",
            "four at once: last TTFT",
            "computed of 6,000",
        ),
        rows,
    )


def arrival(reading: Reading) -> Iterator[str]:
    """What the running streams notice."""
    figures = (
        ("before_p50_ms", "{:.1f} ms"),
        ("during_p50_ms", "{:.1f} ms"),
        ("during_p99_ms", "{:.1f} ms"),
        ("ratio", "{:.2f}×"),
        ("long_ttft_ms", "{:.0f} ms"),
    )
    rows = [
        (
            engine.key,
            *(
                _spread(reading.spread("arrival", engine.key, figure, 4), shape)
                for figure, shape in figures
            ),
        )
        for engine in reading.results.engines
    ]
    head = ("engine", "ITL p50 before", "p50 during", "p99 during", "p99 / p50 before", "its TTFT")
    yield from table(head, rows)


def memory_and_start(reading: Reading) -> Iterator[str]:
    """At the end of the run; and the time to the first answer."""
    rows = []
    for engine in reading.results.engines:
        memory = reading.results.of("memory", engine.key)
        figures = memory[0].figures if memory else {}
        sizes = [
            f"{figures[name] / _MIB:,.0f} MiB" if name in figures else _NONE
            for name in ("pss_bytes", "alone_bytes", "rss_bytes")
        ]
        ready = _spread(reading.spread("ready", engine.key, "ready_s"), "{:.1f} s")
        rows.append((engine.key, *sizes, ready))
    yield "Memory of all processes after all load: PSS as the kernel counts it (pages shared with"
    yield "other servers of this comparison count in part), what it would be alone, and summed RSS."
    yield "Start: from the command to the end of the first completion, model in the page cache."
    yield ""
    yield from table(("engine", "PSS", "alone", "RSS", "first answer after"), rows)


def answers(reading: Reading) -> Iterator[str]:
    """Against our own float32."""
    collected = reading.results.answers
    if REFERENCE not in collected:
        yield "Not collected."
        return
    rows = []
    for key, texts in collected.items():
        if key != REFERENCE:
            like = compare(texts, collected[REFERENCE])
            rows.append(
                (
                    key,
                    f"{like.same} of {like.answers}",
                    f"{like.common_share:.0%}",
                    str(like.least_words),
                )
            )
    yield "Greedy answers of 48 tokens to plain prompts, against our float32."
    yield ""
    head = ("engine", "equal", "characters before the first difference", "fewest distinct words")
    yield from table(head, rows)


def trust(reading: Reading) -> Iterator[str]:
    """What could have falsified the numbers, counted."""
    rows = [row for row in reading.results.rows if row.scenario not in ("ready", "memory")]
    loads = [row for row in rows if row.scenario != "scheduler"]
    served = [row for row in loads if row.client_cpu > 0]
    disturbed = [row for row in loads if row.is_disturbed]
    repeated = sum(row.attempts - 1 for row in loads)
    yield f"- {len(loads)} loads; {repeated} repeated because others used the machine;"
    yield f"  {len(disturbed)} still had more than {DISTURBANCE:.0%} of its CPU time in other hands"
    yield "  at the last attempt, and count only where no round was calm."
    if loads:
        others = [row.others + row.stolen for row in loads]
        median = quantile(others, 0.5)
        yield f"- CPU time in other hands: median {median:.1%}, worst {max(others):.1%}."
    if served:
        yield f"- The client used {_range(served, 'client_cpu')} cores and waited"
        waits = _range(served, "client_wait_us")
        yield f"  {waits} µs for a processor per wake-up: median (worst)."
    complete = [row for row in served if row.figures.get("tokens")]
    if complete:
        share = [row.figures["texts"] / row.figures["tokens"] for row in complete]
        yield "- Every request that counts produced the tokens it was asked for, by the server's"
        yield f"  own usage; events with text per token: {min(share):.3f} to {max(share):.3f}."
    invalid = reading.invalid()
    yield f"- Loads with wrong answers, left out: {len(invalid)}."
    for row in invalid:
        faults = "; ".join(row.faults)[:200]
        yield f"  - {row.scenario} at {row.concurrency}, {row.engine}: {faults}"
    yield from _same_engine_twice(reading)


def _same_engine_twice(reading: Reading) -> Iterator[str]:
    """`auto` and the precision it stands for are the same server: their ratio is noise."""
    primary = reading.engine(PRIMARY)
    if primary is None or "(" not in primary.precision:
        return
    twin = f"ours-{primary.precision.split('(')[1].rstrip(')')}"
    ratios = []
    for c in reading.concurrencies:
        ours = reading.results.by_round("decode", PRIMARY, "tokens_per_s", c)
        same = reading.results.by_round("decode", twin, "tokens_per_s", c)
        ratios += [ours[number] / same[number] for number in ours.keys() & same.keys()]
    if ratios:
        found = spread_of(ratios)
        yield f"- {PRIMARY} and {twin} are the same server started twice: their ratios within"
        yield f"  rounds run from {found.low:.2f} to {found.high:.2f}, median {found.median:.3f}."


def _range(rows: list[Row], name: str) -> str:
    values = [getattr(row, name) for row in rows]
    return f"{quantile(values, 0.5):.3g} ({max(values):.3g})"


def _mib(spread: Spread | None) -> str:
    return _NONE if spread is None else f"{spread.median / _MIB:,.0f} MiB"


def _spread(spread: Spread | None, shape: str) -> str:
    if spread is None:
        return _NONE
    middle = shape.format(spread.median)
    if spread.rounds == 1:
        return middle
    low, high = shape.format(spread.low), shape.format(spread.high)
    return f"{middle} [{low.split(' ')[0].rstrip('×')}, {high.split(' ')[0].rstrip('×')}]"

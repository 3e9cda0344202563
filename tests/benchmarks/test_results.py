"""Results survive the file; targets are judged by medians; the report leaves nothing out."""

from pathlib import Path

import msgspec
import pytest
from benchmarks.engines.engine import Dot
from benchmarks.engines.machine import Facts
from benchmarks.engines.process_tree import parse_smaps
from benchmarks.engines.reading import Reading
from benchmarks.engines.record import Described, Results, Row, load, merge, save
from benchmarks.engines.report import write_report
from benchmarks.engines.roofline import Roofline
from benchmarks.engines.targets import Verdict, judge

FACTS = Facts(
    date="2026-01-01T00:00:00+00:00",
    commit="0123456789ab",
    cpu_model="A processor",
    cpus=2,
    caches={"L2 unified": "1024K"},
    memory_gib=24.0,
    kernel="Linux 6",
    hypervisor=True,
    huge_pages="madvise",
    python="3.11",
)


def engine(key: str, precision: str, dot: Dot = "bf16") -> Described:
    family = "steelyard" if key.startswith("ours") else "vllm"
    return Described(key, family, precision, "serve", 16, 16, dot, 2)


def decode(key: str, number: int, tokens_per_s: float, itl_ms: float = 10.0) -> Row:
    figures = {"tokens_per_s": tokens_per_s, "itl_p50_ms": itl_ms}
    return Row("decode", key, number, concurrency=1, figures=figures)


@pytest.fixture
def results() -> Results:
    rows = [decode("ours-auto", n, rate) for n, rate in enumerate((100.0, 120.0, 110.0))]
    rows += [decode("vllm-bf16", n, rate) for n, rate in enumerate((80.0, 125.0, 90.0))]
    return Results(
        facts=FACTS,
        plan={"rounds": 3, "threads": 2, "context_tokens": 2048},
        model={
            "layer_weights": 106_168_320,
            "head_weights": 28_311_552,
            "kv_elements": 11_520,
            "query_elements": 17_280,
        },
        engines=[engine("ours-auto", "auto (int4)"), engine("vllm-bf16", "bf16")],
        rooflines=[
            Roofline(2, 40e9, {"fp32": 2e11, "bf16": 5e11}, "measured"),
            Roofline(2, 50e9, {"fp32": 1e11, "bf16": 5e11}, "measured"),
        ],
        rows=rows,
    )


def verdict(results: Results, words: str) -> Verdict:
    return next(one for one in judge(Reading(results)) if words in one.what)


def test_results_come_back_from_the_file_unchanged(results: Results, tmp_path: Path) -> None:
    save(results, tmp_path / "results.json")
    assert load(tmp_path / "results.json") == results


def test_a_ratio_of_medians_decides_and_single_rounds_are_mentioned(results: Results) -> None:
    found = verdict(results, "at 1, auto")
    assert found.reached.startswith("1.22×") and "vllm-bf16" in found.reached
    assert found.verdict == "reached (not in every round)"


def test_a_target_below_its_limit_in_every_round_is_missed(results: Results) -> None:
    for row in results.rows:
        if row.engine == "ours-auto":
            row.figures["tokens_per_s"] /= 2
    assert verdict(results, "at 1, auto").verdict == "missed"


def test_what_was_not_measured_is_said_to_be_so(results: Results) -> None:
    assert verdict(results, "memory").verdict == "not measured"


def test_rows_with_faults_count_for_nothing(results: Results) -> None:
    results.rows[0].faults = ["status 500"]
    assert results.by_round("decode", "ours-auto", "tokens_per_s", 1) == {1: 120.0, 2: 110.0}


def test_disturbed_rows_count_only_where_there_are_no_others(results: Results) -> None:
    results.rows[0].others = 0.5
    assert set(results.by_round("decode", "ours-auto", "tokens_per_s", 1)) == {1, 2}
    for row in results.rows[:3]:
        row.others = 0.5
    assert set(results.by_round("decode", "ours-auto", "tokens_per_s", 1)) == {0, 1, 2}


def test_the_roofline_is_the_best_that_the_machine_did(results: Results) -> None:
    reading = Reading(results)
    assert reading.roofline is not None
    assert (reading.roofline.bytes_per_s, reading.roofline.rates["fp32"]) == (50e9, 2e11)
    share = reading.roofline_share(results.engines[0], 1)
    bound = reading.bound(results.engines[0], 1)
    assert share is not None and bound is not None
    assert share.median == pytest.approx(100 / bound)
    assert bound == pytest.approx(50e9 / (268.96e6 + 192 * 11_520 * 2), rel=1e-3)


def test_the_overhead_pairs_runs_of_the_same_number(results: Results) -> None:
    for number, (served, bare) in enumerate([(95.0, 100.0), (90.0, 100.0), (48.0, 50.0)]):
        for key, rate in (("ours-auto", served), ("bare", bare)):
            figures = {"whole_tokens_per_s": rate}
            results.rows.append(Row("overhead", key, number, concurrency=16, figures=figures))
    found = verdict(results, "overhead")
    assert found.reached.startswith("5.0%") and found.verdict == "reached (not in every round)"


def test_a_report_can_be_written_of_whatever_there_is(results: Results, tmp_path: Path) -> None:
    results.rows[0].faults = ["status 500: lost"]
    write_report(results, tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text()
    assert "| ours-auto | 115 [110, 120] |" in text
    assert "status 500: lost" in text


SMAPS = """\
55d0-55d1 r-xp 00000000 fe:00 123                        /usr/lib/some.so
Rss:                 100 kB
Pss:                  40 kB
Anonymous:             0 kB
55d1-55d2 rw-p 00001000 fe:00 123                        /usr/lib/some.so
Rss:                  20 kB
Pss:                  20 kB
Anonymous:            12 kB
7f00-7f01 rw-p 00000000 00:00 0                          [heap]
Rss:                  50 kB
Pss:                  30 kB
Anonymous:            50 kB
"""


def test_memory_is_counted_by_file_and_without_files() -> None:
    maps = parse_smaps(SMAPS)
    assert (maps.rss, maps.pss) == (170, 90)
    assert maps.by_file == {"fe:00/123": 108}
    assert maps.anonymous == 12 + 30


def test_further_rounds_join_a_comparison(results: Results) -> None:
    merged = merge(results, results)
    assert Reading(merged).spread("decode", "ours-auto", "tokens_per_s", 1) is not None
    assert len(merged.of("decode", "ours-auto")) == 2 * len(results.of("decode", "ours-auto"))
    assert len({row.round for row in merged.of("decode", "ours-auto")}) == 6
    assert merged.engines == results.engines and merged.more_facts == [results.facts]


def test_results_of_another_machine_are_not_merged(results: Results) -> None:
    elsewhere = msgspec.structs.replace(
        results, facts=msgspec.structs.replace(results.facts, cpu_model="Another processor")
    )
    with pytest.raises(ValueError, match="another model or machine"):
        merge(results, elsewhere)

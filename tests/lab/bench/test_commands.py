"""`steelyard bench` against a mock over real sockets: what it prints, writes, and how it ends."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.result import RunResult, read_result
from steelyard.lab.series import Curve, Repeats, Stress, Sweep, read_series

from .conftest import Mock, bench

QUICK = ("--prompt-tokens", "20", "--output-tokens", "6")


def test_a_run_prints_its_findings_and_writes_every_file(server: Mock, tmp_path: Path) -> None:
    done = bench("run", server.url, "-c", "3", "-n", "40", *QUICK, "--save", str(tmp_path))
    assert done.exit_code in (0, 3), done.output
    for words in ("First token after", "output tokens/s", "ttft_ms", "wrote "):
        assert words in done.stdout
    result = read_result(tmp_path / "result.json")
    assert result.counts.complete == 40
    assert result.tokens.output == result.tokens.by_usage == 240
    assert result.requests is not None and len(result.requests.ttft_ms) == 40
    with (tmp_path / "requests.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 40
    assert (tmp_path / "report.md").read_text().startswith("# Run ")
    page = (tmp_path / "report.html").read_text()
    assert "Plotly.newPlot" in page
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)=", outside), "the page needs nothing from elsewhere"


def test_what_was_measured_is_invalid_when_answers_fail_and_the_exit_status_says_so(
    mock_process: Callable[..., Mock],
) -> None:
    failing = mock_process(fault_500=0.5, ttft_ms=5, itl_ms=1)
    done = bench("run", failing.url, "-c", "2", "-n", "30", *QUICK)
    assert done.exit_code == 3
    assert "INVALID" in done.stdout
    assert "of the requests failed" in done.stdout
    assert "server error" in done.stdout or "failed" in done.stdout


def test_ctrl_c_keeps_what_was_measured(server: Mock, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    arguments = ("run", server.url, "-r", "40", "-d", "60", *QUICK, "--json", str(file))
    process = subprocess.Popen(
        [sys.executable, "-m", "steelyard.cli", "bench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_until_measured(server, 20)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in printed
    result = read_result(file)
    assert result.counts.complete >= 10
    assert result.audit.labels == ["interrupted"]


@pytest.mark.slow
def test_a_curve_is_a_table_over_users(server: Mock, tmp_path: Path) -> None:
    file = tmp_path / "curve.json"
    done = bench("curve", server.url, "-c", "1,4", "-d", "0.8", *QUICK, "--json", str(file))
    assert done.exit_code in (0, 3), done.output
    curve = read_series(file)
    assert isinstance(curve, Curve)
    assert [point.concurrency for point in curve.points] == [1, 4]
    slow, fast = (point.output_tokens_per_s for point in curve.points)
    assert 2.5 * slow < fast < 6 * slow, "the mock has room for both"
    assert "users" in done.stdout and "Knee" in done.stdout


@pytest.mark.slow
def test_a_sweep_ends_when_the_target_is_missed(
    mock_process: Callable[..., Mock], tmp_path: Path
) -> None:
    # Two places of 45 ms each: 44 requests per second.
    narrow = mock_process(ttft_ms=30, itl_ms=3, slots=2)
    file = tmp_path / "sweep.json"
    flags = ("--first-rate", "15", "--growth", "4", "--halvings", "0", "--slo", "ttft=100")
    done = bench("sweep", narrow.url, *flags, "-d", "1.5", *QUICK, "--json", str(file))
    assert done.exit_code in (0, 3), done.output
    sweep = read_series(file)
    assert isinstance(sweep, Sweep)
    assert [round(point.rate) for point in sweep.points] == [15, 60]
    assert sweep.knee_rate == pytest.approx(15, rel=0.1)


@pytest.mark.slow
def test_stress_compares_a_burst_with_the_peak(
    mock_process: Callable[..., Mock], tmp_path: Path
) -> None:
    narrow = mock_process(ttft_ms=30, itl_ms=3, slots=2)
    file = tmp_path / "stress.json"
    flags = ("--peak", "15", "--factor", "5", "--slo", "ttft=100", "--burstiness", "0")
    phases = ("--before", "1.5", "--burst", "1", "--after", "5")
    done = bench("stress", narrow.url, *flags, *phases, *QUICK, "--json", str(file))
    assert done.exit_code in (0, 3), done.output
    stress = read_series(file)
    assert isinstance(stress, Stress)
    before, burst, after = stress.phases
    assert before.goodput.share.value == 1
    assert burst.goodput.share.value < 0.7
    assert after.goodput.share.value > burst.goodput.share.value
    assert stress.recovery_s is not None and 0 < stress.recovery_s < 3


@pytest.mark.slow
def test_repeats_have_seeds_of_their_own(server: Mock, tmp_path: Path) -> None:
    file = tmp_path / "repeats.json"
    flags = ("-n", "15", "--repeats", "2", "--seed", "5")
    done = bench("run", server.url, *flags, *QUICK, "--json", str(file))
    assert done.exit_code in (0, 3), done.output
    repeats = read_series(file)
    assert isinstance(repeats, Repeats)
    assert [run.workload.seed for run in repeats.runs] == [5, 6]
    mean = repeats.across["ttft_ms"]["mean"]
    assert mean.low is not None and mean.low < 30 < 1.2 * mean.value


@pytest.mark.slow
def test_a_trace_with_shared_blocks_becomes_requests_with_shared_beginnings(
    mock_process: Callable[..., Mock], tmp_path: Path
) -> None:
    rows = [
        {"timestamp": 40 * n, "input_length": 1024, "output_length": 3, "hash_ids": [7, 100 + n]}
        for n in range(12)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = _run(mock_process().url, "--trace", str(trace), folder=tmp_path)
    assert result.counts.complete == 12
    assert result.tokens.prompt_asked == 12 * 1024
    assert result.tokens.prompt is not None
    assert result.tokens.prompt == pytest.approx(result.tokens.prompt_asked, rel=0.02)
    assert result.arrivals is not None and result.arrivals.count == 12


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    done = bench("run", "http://127.0.0.1:1")
    assert isinstance(done.exception, InvalidRequest)
    assert done.exception.fix == "is the server running?"


@pytest.mark.parametrize("kind", ["run", "series"])
def test_the_schema_can_be_printed(kind: str) -> None:
    schema = json.loads(bench("schema", kind).stdout)
    assert "$defs" in schema


def _run(url: str, *arguments: str, folder: Path) -> RunResult:
    file = folder / "result.json"
    done = bench("run", url, *arguments, "--json", str(file))
    assert done.exit_code in (0, 3), done.output
    return read_result(file)


def _wait_until_measured(server: Mock, requests: int) -> None:
    """Until the mock has seen so many more requests."""
    import urllib.request

    def seen() -> int:
        with urllib.request.urlopen(f"{server.url}/mock/timing", timeout=5) as answer:
            return int(json.load(answer)["tokens"])

    before, end_s = seen(), time.monotonic() + 20
    while seen() < before + 6 * requests:
        assert time.monotonic() < end_s, "nothing is measured"
        time.sleep(0.05)

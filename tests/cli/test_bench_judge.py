"""`steelyard bench baseline`, `list`, `history`, `gate`, `compare`, `explain`, `schedule`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from steelyard.cli.bench import app
from steelyard.contract.errors import InvalidRequest
from steelyard.lab.result import write_result

from ..lab.judge.results import made_up_run


class Bench:
    """The commands, with an archive and result files of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, command: str, *arguments: object, keeps: bool = True) -> Result:
        archive = ["--archive", str(self.folder / "a.sqlite")] if keeps else []
        words = [command, *map(str, arguments), *archive]
        return CliRunner().invoke(app, words, env={"COLUMNS": "200"})

    def result(self, name: str, **changes: object) -> Path:
        path = self.folder / f"{name}.json"
        write_result(made_up_run(name, **changes), path)
        return path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_baseline_is_kept_listed_and_remembered(bench: Bench) -> None:
    kept = bench("baseline", bench.result("one"), "--set", "monthly", "--note", "the first")
    assert kept.exit_code == 0
    assert "stored as 1" in kept.output
    assert "in monthly with 1" in kept.output
    assert "the first" in bench("list").output
    page = bench.folder / "history.html"
    assert "TTFT p50" in bench("history", "--html", page).output
    assert "Plotly.newPlot" in page.read_text()


def test_the_gates_exit_status_says_what_happened(bench: Bench) -> None:
    for number in range(6):
        name = f"b{number}"
        bench("baseline", bench.result(name, seed=number, noise=0.01), "--set", "s")
    assert bench("gate", bench.result("equal", seed=20), "--set", "s").exit_code == 0
    slow = bench.result("slow", factor=1.3, seed=21)
    junit = bench.folder / "gate.xml"
    assert bench("gate", slow, "--set", "s", "--junit", junit).exit_code == 4
    assert "<failure" in junit.read_text()
    assert bench("gate", slow, "--set", "s", "--tolerance", "60").exit_code == 0
    strict = bench("gate", bench.result("e2"), "--set", "s", "--strict", "--tolerance", "0.1")
    assert strict.exit_code == 5
    invalid = bench.result("invalid", reasons=("the clock jumped",))
    assert bench("gate", invalid, "--set", "s").exit_code == 3


def test_an_empty_set_is_begun_only_when_told(bench: Bench) -> None:
    one = bench.result("one")
    assert isinstance(bench("gate", one, "--set", "s").exception, InvalidRequest)
    assert bench("gate", one, "--set", "s", "--start").exit_code == 0
    assert bench("gate", bench.result("two", seed=2), "--set", "s", "--start").exit_code == 0
    assert "1 results" in bench("list", "--set", "s").output


def test_a_run_that_failed_its_audit_is_no_baseline_unless_forced(bench: Bench) -> None:
    bad = bench.result("bad", reasons=("the clock jumped",))
    assert isinstance(bench("baseline", bad, "--set", "s").exception, InvalidRequest)
    assert bench("baseline", bad, "--set", "s", "--force-invalid").exit_code == 0


def test_stored_results_are_compared_and_unlike_ones_refused(bench: Bench) -> None:
    before, after = bench.result("before"), bench.result("after", factor=1.2, seed=3)
    worse = bench("compare", before, after)
    assert worse.exit_code == 4
    assert "worse: " in worse.output
    bench("baseline", after, "--fact", "driver=2")
    bench("baseline", before, "--fact", "driver=1")
    refused = bench("compare", "before", "after")
    assert isinstance(refused.exception, InvalidRequest)
    assert "driver: 1 against 2" in str(refused.exception)
    assert bench("compare", "before", "after", "--unlike", "driver").exit_code == 4


@pytest.mark.parametrize("sides", [["one"], ["http://127.0.0.1:1", "one"]])
def test_sides_that_cannot_be_compared_are_wrong_usage(bench: Bench, sides: list[str]) -> None:
    assert bench("compare", *sides).exit_code == 2


def test_a_run_without_metrics_is_explained_with_what_is_missing(bench: Bench) -> None:
    told = bench("explain", bench.result("one"))
    assert told.exit_code == 0
    assert "shows no metrics" in told.output


def test_schedules_are_written_and_checked(bench: Bench) -> None:
    folder = bench.folder / "every month"
    done = bench("schedule", "http://127.0.0.1:1", "--folder", folder, "--day", "9", keeps=False)
    assert done.exit_code == 0, done.output
    assert "sh -n" in done.output
    assert len(list(folder.iterdir())) == 5
    assert (folder / "steelyard-standard-test.sh").stat().st_mode & 0o111


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"[]",
        b'{"schema": 7}',
        b'{"schema": "steelyard.run/999"}',
        b'{"x":' + b"[" * 100_000,
        b'{"schema": "steelyard.curve/1", "runs": []}',
    ],
)
@pytest.mark.parametrize("command", ["compare", "gate", "baseline", "explain"])
def test_files_that_hold_no_result_are_refused_by_name(
    bench: Bench, command: str, content: bytes
) -> None:
    bench("baseline", bench.result("good"), "--set", "s")
    path = bench.folder / "broken.json"
    path.write_bytes(content)
    more = {"compare": [path], "gate": ["--set", "s"]}.get(command, [])
    error = bench(command, path, *more).exception
    assert isinstance(error, InvalidRequest)
    assert error.param == str(path)


def test_a_result_cut_off_anywhere_is_refused_by_name(bench: Bench) -> None:
    whole = bench.result("whole").read_bytes()
    bench("baseline", bench.result("good"), "--set", "s")
    path = bench.folder / "cut.json"
    for part in range(0, len(whole) - 2, len(whole) // 20):
        path.write_bytes(whole[:part])
        error = bench("gate", path, "--set", "s").exception
        assert isinstance(error, InvalidRequest)
        assert error.param == str(path)


def test_percentiles_that_one_side_lacks_are_not_compared(bench: Bench) -> None:
    left, right = bench.result("left"), bench.result("right")
    left.write_text(left.read_text().replace('"p99"', '"p98"'))
    assert bench("compare", left, right).exit_code in (0, None)

"""Files for schedulers say what they should, in each scheduler's own language."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.judge.schedule import Schedule, check_schedule, make_schedule, parse_cron


def written(folder: Path, **changes: object) -> dict[str, str]:
    values = {"url": "http://127.0.0.1:8000", "set_name": "monthly", "folder": folder, **changes}
    files = make_schedule(Schedule(**values))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "steelyard-standard-test.sh").chmod(0o755)
    return files


@pytest.mark.parametrize("name", ["plain", "with space", "100% sure", 'a "quoted" $HOME'])
def test_every_scheduler_takes_its_file(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    files = written(folder, day=15, hour=4, minute=5)
    read = dict(check_schedule(folder, files))
    assert read["steelyard-standard-test.cron"] == "parsed"
    assert read["steelyard-standard-test.sh"] == "sh -n"


def test_all_files_name_the_same_time(tmp_path: Path) -> None:
    files = written(tmp_path, day=15, hour=4, minute=5)
    assert "OnCalendar=*-*-15 04:05:00" in files["steelyard-standard-test.timer"]
    (line,) = (
        line
        for line in files["steelyard-standard-test.cron"].splitlines()
        if not line.startswith("#")
    )
    fields, command = parse_cron(line)
    assert fields[:3] == ({5}, {4}, {15})
    assert command.endswith("steelyard-standard-test.sh")
    workflow = yaml.safe_load(files["steelyard-standard-test.yml"])
    assert workflow[True]["schedule"] == [{"cron": "5 4 15 * *"}]


def test_the_script_measures_keeps_and_gates_and_ends_as_the_gate_does(tmp_path: Path) -> None:
    program = tmp_path / "it's steelyard"
    program.write_text(
        '#!/bin/sh\nprintf "%s|" "$@" >> "$CALLS"\necho >> "$CALLS"\n[ "$2" != gate ] || exit 4\n'
    )
    program.chmod(0o755)
    written(
        tmp_path / "s", program=str(program), measure=("--rate", "5"), gate=("--tolerance", "9")
    )
    done = subprocess.run(
        [tmp_path / "s" / "steelyard-standard-test.sh"],
        env={**os.environ, "CALLS": str(tmp_path / "calls")},
    )
    assert done.returncode == 4
    run, keep, gate = (line.split("|") for line in (tmp_path / "calls").read_text().splitlines())
    assert run[:5] == ["bench", "run", "http://127.0.0.1:8000", "--rate", "5"]
    assert keep[:2] == ["bench", "baseline"]
    assert gate[:2] == ["bench", "gate"]
    assert gate[3:8] == ["--set", "monthly", "--start", "--tolerance", "9"]
    assert run[run.index("--json") + 1] == keep[2] == gate[2]


@pytest.mark.parametrize(
    "changes", [{"day": 31}, {"hour": 24}, {"minute": -1}, {"set_name": "two\nlines"}]
)
def test_what_no_scheduler_can_do_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        written(tmp_path, **changes)


@given(st.integers(0, 59), st.integers(0, 23), st.integers(1, 28), st.text("abc/ %", min_size=1))
def test_cron_lines_are_read_as_they_were_meant(
    minute: int, hour: int, day: int, command: str
) -> None:
    command = "x" + command.strip()
    fields, read = parse_cron(f"{minute} {hour} {day} * * {command}")
    assert fields[:3] == ({minute}, {hour}, {day})
    assert fields[3] == set(range(1, 13))
    assert read == command


@pytest.mark.parametrize(
    "line", ["60 1 1 * * x", "1 1 * * x", "1 1 0 * * x", "a 1 1 * * x", "5-1 * * * * x"]
)
def test_lines_that_cron_refuses_are_refused(line: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_cron(line)


def test_ranges_lists_and_steps_are_understood() -> None:
    fields, _ = parse_cron("*/20 1-3,7 1 * 1-5/2 x")
    assert fields[0] == {0, 20, 40}
    assert fields[1] == {1, 2, 3, 7}
    assert fields[4] == {1, 3, 5}

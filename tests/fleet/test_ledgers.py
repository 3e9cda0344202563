"""What a fleet knows after its supervisor has died."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from steelyard.contract.errors import SettingsError
from steelyard.fleet.ledger import Ledger, ProcessRecord


def record_of(pid: int) -> ProcessRecord:
    return ProcessRecord(pid, psutil.Process(pid).create_time(), "digest")


def test_what_was_noted_is_there_after_a_restart(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state.json")
    record = record_of(os.getpid())
    ledger.note_process("main/0", record)
    ledger.note_count("main", 4)
    ledger.note_serving("b/0", True)
    again = Ledger(tmp_path / "state.json")
    assert again.process("main/0") == record and record.is_alive()
    assert again.count("main", 1) == 4 and again.count("other", 2) == 2
    assert again.is_serving("b/0", default=False) and again.is_serving("a/0", default=True)
    again.note_process("main/0", None)
    assert Ledger(tmp_path / "state.json").process("main/0") is None


def test_a_process_number_that_was_given_away_again_is_not_taken_for_the_engine() -> None:
    record = record_of(os.getpid())
    assert not ProcessRecord(record.pid, record.started_s - 60, "digest").is_alive()


def test_a_process_that_has_ended_is_not_alive_even_before_it_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        record = record_of(process.pid)
        assert record.is_alive()
        process.kill()
        while record.is_alive():
            time.sleep(0.01)
    assert not record.is_alive()


def test_a_ledger_that_cannot_be_read_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("{")
    with pytest.raises(SettingsError, match="cannot be read"):
        Ledger(path)
    assert path.read_text() == "{"

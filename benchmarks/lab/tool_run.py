"""Runs one tool once against a fresh mock; keeps what it said, what was true, what it cost."""

import os
import resource
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from benchmarks.lab.mock_process import running_mock
from benchmarks.lab.scenarios import Scenario
from benchmarks.lab.tools import Reported, Tool
from benchmarks.lab.truth_numbers import TrueNumbers, true_numbers

from steelyard.lab.mock import read_truth

__all__ = ["ToolRun", "run_tool"]

_TIMEOUT_S = 900


@dataclass(frozen=True)
class ToolRun:
    """One tool, one scenario."""

    tool: str
    scenario: str
    command: str
    reported: Reported | None
    """None when it gave no report; `failure` says why."""
    truth: TrueNumbers
    own_timing: dict[str, Any]
    """The mock's own error during the run."""
    seconds: float
    after_last_token_s: float
    """From the last token to the end of the tool: the time its report took."""
    cpu_s: float
    peak_bytes: int
    """Largest sum of the proportional memory of its processes, seen every half second."""
    failure: str = ""


def run_tool(tool: Tool, scenario: Scenario, peers: Path) -> ToolRun:
    """Start a mock, run the tool, read both reports."""
    with tempfile.TemporaryDirectory() as name:
        folder, truth_file = Path(name) / "report", Path(name) / "truth.jsonl"
        folder.mkdir()
        with running_mock(**scenario.mock, truth=truth_file) as mock:
            command = tool.command(scenario, mock.url, folder, peers)
            before_s, begun_s = _children_cpu_s(), time.monotonic()
            process, output, peak_bytes = _run(command, tool)
            ended_ns = time.monotonic_ns()
            cpu_s = _children_cpu_s() - before_s
            own_timing = mock.timing()
        # Requests of other lengths are those by which a tool gets to know the server.
        requests = [
            request
            for request in read_truth(truth_file)[1]
            if request.outcome != "finished" or request.output_tokens == scenario.output_tokens
        ]
        gap_s = 1 / scenario.rate if scenario.arrivals == "constant" else None
        last_ns = max((r.ended_ns or 0 for r in requests), default=ended_ns)
        is_usable = tool.accepts(process.returncode)
        if not is_usable:
            print(
                f"{tool.name} ended with {process.returncode}:\n{output[-2000:]}", file=sys.stderr
            )
        return ToolRun(
            tool.name,
            scenario.name,
            _shown(command, {folder: "REPORT", peers: "PEERS"}),
            tool.read(folder, output) if is_usable else None,
            true_numbers(requests, gap_s),
            own_timing,
            seconds=(ended_ns / 1e9) - begun_s,
            after_last_token_s=(ended_ns - last_ns) / 1e9,
            cpu_s=cpu_s,
            peak_bytes=peak_bytes,
            failure="" if is_usable else f"exit status {process.returncode}",
        )


def _run(command: list[str], tool: Tool) -> tuple["subprocess.Popen[str]", str, int]:
    """The ended process, what it printed, and the most memory it was seen to use."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=tool.environment(),
    )
    peak = [0]

    def watch() -> None:
        while process.poll() is None:
            peak[0] = max(peak[0], _tree_bytes(process.pid))
            time.sleep(0.5)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        output, _ = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate()
    watcher.join()
    return process, output, peak[0]


def _tree_bytes(pid: int) -> int:
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            total += process.memory_full_info().pss
    except psutil.Error:
        pass  # a process ended while we looked
    return total


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _shown(command: list[str], names: dict[Path, str]) -> str:
    """The command as text, without the folders of one machine."""
    text = shlex.join(command)
    for folder, name in names.items():
        text = text.replace(str(folder), name)
    return text.replace(str(Path(sys.executable).parent) + os.sep, "")

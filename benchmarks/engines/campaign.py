"""The order of things: start all servers, measure them in turn round by round, stop them.

Every server but the one under load is paused. The order rotates from round to round, so that no
engine always follows the same other one.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path

import msgspec
from benchmarks.engines import scenarios
from benchmarks.engines.costs import size_of
from benchmarks.engines.engine import Engine
from benchmarks.engines.engines import (
    Setting,
    our_engine,
    our_settings,
    prepare_peers,
    resolve_auto,
)
from benchmarks.engines.greedy_answers import REFERENCE, Answers
from benchmarks.engines.machine import describe_machine
from benchmarks.engines.peers import peer_versions
from benchmarks.engines.plan import OUR_KEYS, Plan
from benchmarks.engines.quiet import QuietPhases
from benchmarks.engines.record import Described, Results, Row, save
from benchmarks.engines.roofline import measure_roofline
from benchmarks.engines.scenarios import Bench
from benchmarks.engines.server import Server
from benchmarks.engines.target import BareTarget, ClientProcess, ServedTarget, Target

from steelyard import __version__
from steelyard.checkpoints import open_checkpoint

__all__ = ["Campaign"]

_ROOT = Path(__file__).parents[2]
_START_LIMIT_S = 900.0
_OVERHEAD_CONCURRENCY = 16
_OVERHEAD_PAIRS = 2
_SCHEDULER_RUNNING = 1000


class Campaign:
    """One run of the comparison. `run` may take an hour; results are saved after every round."""

    def __init__(self, plan: Plan, gguf: Path) -> None:
        self._plan = plan
        self._setting = Setting(
            gguf, plan.threads, plan.context_tokens, plan.peers_dir, plan.work_dir
        )
        self._quiet = QuietPhases(plan.quiet_file)
        self._client: ClientProcess | None = None
        self._served: list[ServedTarget] = []
        self._bare: BareTarget | None = None
        self._answers = Answers(gguf)
        plan.work_dir.mkdir(parents=True, exist_ok=True)
        ours = [key.removeprefix("ours-") for key in plan.engines if key in OUR_KEYS]
        self._engines = [our_engine(self._setting, precision) for precision in ours]
        self._engines += prepare_peers(self._setting, set(plan.engines))
        versions = {"steelyard": __version__, "torch": metadata.version("torch")}
        self._results = Results(
            facts=describe_machine(versions | peer_versions(plan.peers_dir)),
            plan=plan.facts(),
            model=_as_dict(size_of(open_checkpoint(gguf))),
        )

    def run(self) -> Results:
        """Start, measure, stop. What was measured before a failure is on disk."""
        with ExitStack() as stack:
            stack.callback(self._quiet.end)
            stack.callback(self._stop)
            self._start()
            for number in range(self._plan.rounds):
                self._round(number)
                save(self._results, self._plan.out)
            self._finish()
        save(self._results, self._plan.out)
        return self._results

    # Starting and stopping.

    def _start(self) -> None:
        self._client = ClientProcess()
        for engine in self._engines:
            server = self._start_server(engine)
            if engine.is_ours:
                engine = resolve_auto(engine, server.log_text())
            self._results.engines.append(_described(engine))
            target = ServedTarget(server, self._client)
            self._served.append(target)
            scenarios.warm_up(target, thoroughly=True)
            if self._plan.wants("answers"):
                self._results.answers[target.key] = self._answers.of(target)
            target.pause()
        if self._plan.wants("answers"):
            self._results.answers[REFERENCE] = self._answers.reference(self._our_sets("fp32"))
        if self._plan.wants("overhead") and self._overhead_target() is not None:
            sets = self._our_sets(self._overhead_precision())
            self._bare = BareTarget("bare", self._setting.gguf, sets)
            scenarios.warm_up(self._bare, thoroughly=True)
            self._bare.pause()

    def _start_server(self, engine: Engine) -> Server:
        """Start it, several times where the time to ready matters; the last one stays."""
        starts = self._plan.ready_starts if engine.is_ours and self._plan.wants("ready") else 1
        for number in range(starts):
            self._quiet.check()
            self._say(f"starting {engine.key}")
            server = Server(engine, self._plan.work_dir / f"{engine.key}.log")
            server.start(_START_LIMIT_S)
            self._add([Row("ready", engine.key, number, figures={"ready_s": server.ready_s})])
            if number < starts - 1:
                server.stop()
        return server

    def _our_sets(self, precision: str) -> list[str]:
        return [f"{key}={value}" for key, value in our_settings(self._setting, precision).items()]

    def _stop(self) -> None:
        for target in self._served:
            target.stop()
        if self._bare is not None:
            self._bare.stop()
        if self._client is not None:
            self._client.stop()

    # Measuring.

    def _round(self, number: int) -> None:
        bench = Bench(number)
        targets = _rotated(self._served, number)
        self._quiet.check()
        self._say(f"round {number + 1} of {self._plan.rounds}: roofline")
        self._results.rooflines.append(measure_roofline(self._plan.threads, self._plan.work_dir))
        if self._plan.wants("decode"):
            for concurrency in self._plan.concurrencies:
                self._each(targets, partial(scenarios.closed_loop, bench, concurrency))
        if self._plan.wants("prefill"):
            for concurrency in (1, 4):
                self._each(targets, partial(scenarios.prefill, bench, concurrency))
        if self._plan.wants("prefix"):
            self._each(targets, partial(scenarios.prefix, bench))
        if self._plan.wants("arrival"):
            self._each(targets, partial(scenarios.arrival, bench))
        if self._plan.wants("overhead"):
            self._overhead(number)

    def _each(self, targets: Sequence[Target], scenario: Callable[[Target], list[Row]]) -> None:
        for target in targets:
            self._quiet.check()
            with _resumed(target):
                self._add(scenario(target))

    def _overhead(self, number: int) -> None:
        """The same load, served and bare, one right after the other; twice per round."""
        served = self._overhead_target()
        if served is None or self._bare is None:
            return
        for pair in range(_OVERHEAD_PAIRS):
            bench = Bench(number * _OVERHEAD_PAIRS + pair)
            targets: list[Target] = [served, self._bare]
            load = partial(scenarios.closed_loop, bench, _OVERHEAD_CONCURRENCY, scenario="overhead")
            self._each(_rotated(targets, pair), load)

    def _finish(self) -> None:
        """What is read once, after all load."""
        for target in self._served:
            memory = target.tree.memory()
            figures = {key: float(value) for key, value in _as_dict(memory).items()}
            figures["threads"] = float(target.tree.threads())
            self._add([Row("memory", target.key, 0, figures=figures)])
        if self._plan.wants("scheduler"):
            self._quiet.check()
            self._add(_scheduler_rows())

    def _overhead_precision(self) -> str:
        return "auto" if "ours-auto" in self._plan.engines else "bf16"

    def _overhead_target(self) -> ServedTarget | None:
        key = f"ours-{self._overhead_precision()}"
        return next((target for target in self._served if target.key == key), None)

    def _add(self, rows: list[Row]) -> None:
        self._results.rows += rows
        for row in rows:
            shown = " ".join(f"{key} {value:.4g}" for key, value in row.figures.items())
            mark = f" DISTURBED {row.others:.0%}" if row.is_disturbed else ""
            faults = f" FAULTS {row.faults}" if row.faults else ""
            self._say(
                f"  {row.scenario:14} {row.engine:11} {row.concurrency:2}  {shown}{mark}{faults}"
            )

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def _resumed(target: Target) -> Iterator[None]:
    target.resume()
    try:
        scenarios.warm_up(target, thoroughly=False)
        yield
    finally:
        target.pause()


def _rotated(targets: Sequence[Target], by: int) -> list[Target]:
    at = by % max(len(targets), 1)
    return [*targets[at:], *targets[:at]]


def _scheduler_rows() -> list[Row]:
    """From the scheduler's own benchmark."""
    script = _ROOT / "benchmarks" / "scheduler" / "step_cost.py"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, str(script), "--steps", "500", "--json", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = msgspec.json.decode(out.read_bytes(), type=list[dict[str, float | str]])
    return [
        Row(
            "scheduler",
            str(row["load"]),
            0,
            concurrency=int(row["running"]),
            figures={
                "step_p50_ms": float(row["step_p50_us"]) / 1e3,
                "step_p99_ms": float(row["step_p99_us"]) / 1e3,
            },
        )
        for row in rows
        if row["running"] == _SCHEDULER_RUNNING
    ]


def _described(engine: Engine) -> Described:
    return Described(
        key=engine.key,
        family=engine.family,
        precision=engine.precision,
        settings=engine.shown,
        layer_bits=engine.bits.layers,
        head_bits=engine.bits.head,
        dot=engine.bits.dot,
        kv_bytes=engine.bits.kv_bytes,
    )


def _as_dict(data: object) -> dict[str, int]:
    return msgspec.to_builtins(data)  # type: ignore[no-any-return]

"""What a campaign measures: read from the command line, kept in the results."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.engines import OUR_PRECISIONS, PEER_KEYS

__all__ = ["SCENARIOS", "Plan", "read_plan"]

SCENARIOS = ("decode", "prefill", "prefix", "arrival", "overhead", "ready", "scheduler", "answers")
OUR_KEYS = tuple(f"ours-{precision}" for precision in OUR_PRECISIONS)
_ROOT = Path(__file__).parents[2]
_QUICK_ENGINES = ("ours-auto", "ours-bf16")


@dataclass(frozen=True, slots=True)
class Plan:
    """Resolved: every value is final here."""

    engines: tuple[str, ...]
    scenarios: frozenset[str]
    concurrencies: tuple[int, ...]
    rounds: int
    ready_starts: int
    """Starts of each of our servers; peers start once."""
    threads: int
    context_tokens: int
    is_quick: bool
    peers_dir: Path
    work_dir: Path
    out: Path
    quiet_file: Path | None

    def wants(self, scenario: str) -> bool:
        return scenario in self.scenarios

    def facts(self) -> dict[str, int | float | str | bool]:
        """For the record."""
        return {
            "rounds": self.rounds,
            "ready_starts": self.ready_starts,
            "threads": self.threads,
            "context_tokens": self.context_tokens,
            "quick": self.is_quick,
        }


def read_plan(arguments: Sequence[str] | None = None) -> Plan:
    """From the command line; ends the program on a mistake."""
    options = _parser().parse_args(arguments)
    quick = options.quick
    default_engines = _QUICK_ENGINES if quick else (*OUR_KEYS, *PEER_KEYS)
    return Plan(
        engines=tuple(options.engines or default_engines),
        scenarios=frozenset(options.scenarios or SCENARIOS),
        concurrencies=tuple(options.concurrency or ((1, 4, 16) if quick else (1, 2, 4, 8, 16))),
        rounds=options.rounds or (2 if quick else 5),
        ready_starts=1 if quick else 3,
        threads=options.threads,
        context_tokens=2048,
        is_quick=quick,
        peers_dir=options.peers_dir.absolute(),
        work_dir=options.work_dir.absolute(),
        out=options.out.absolute(),
        quiet_file=options.quiet_file,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engines",
        description="Compares our server with vLLM and llama.cpp on this machine.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="ours only, fewer rounds: a few minutes")
    add("--engines", nargs="+", choices=[*OUR_KEYS, *PEER_KEYS], metavar="KEY",
        help=f"of {', '.join([*OUR_KEYS, *PEER_KEYS])}")  # fmt: skip
    add("--scenarios", nargs="+", choices=SCENARIOS, metavar="NAME",
        help=f"of {', '.join(SCENARIOS)}")  # fmt: skip
    add("--concurrency", nargs="+", type=int, metavar="N", help="of the closed loops")
    add("--rounds", type=int, help="interleaved rounds; default 5, quick 2")
    add("--threads", type=int, default=2, help="compute threads of each engine")
    add("--peers-dir", type=Path, default=_ROOT / "build" / "benchmark-peers", metavar="FOLDER",
        help="virtual environments of the peers, made where they are missing")  # fmt: skip
    add("--work-dir", type=Path, default=_ROOT / "build" / "benchmarks", metavar="FOLDER",
        help="converted weights, logs, compiled programs")  # fmt: skip
    add("--out", type=Path, default=_ROOT / "build" / "benchmarks" / "engines.json",
        metavar="FILE.json", help="results; the report goes beside them")  # fmt: skip
    add("--quiet-file", type=Path, metavar="FILE",
        help="exists while something is measured, for others on the machine to wait for; given "
        "up for a while every nine minutes")  # fmt: skip
    return parser

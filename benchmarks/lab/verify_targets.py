"""Verifies our server and its peers, and counts how many planted faults are found.

    python -m benchmarks.lab.verify_targets [--targets ours-auto llama-q8_0 vllm-bf16] [--no-faults]

Three parts, each server alone on the machine:

    targets      the whole verification; ours must pass, peers' findings are looked at by hand
    faults       our server behind the proxy, one planted fault at a time: is any check failing?
    comparison   our bf16 against vLLM's bf16, token by token

Writes `verify.json` and `verify.md` into results/, and the full reports beside them. What was seen
when each finding on a peer was looked at stands in `verify_judgements`.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
from benchmarks.engines.engine import Engine
from benchmarks.engines.engines import Setting, our_engine, prepare_peers
from benchmarks.engines.machine import Facts, describe_machine
from benchmarks.engines.server import Server
from benchmarks.lab.verify_tables import FaultRow, Results, TargetRow, write_markdown

from steelyard.checkpoints import ModelStore
from steelyard.lab.mock.proxy import FAULTS, FaultProxy, make_faults
from steelyard.lab.verify import Report, Status, VerifyConfig, read_target, to_json, verify
from steelyard.settings import resolve

_RESULTS = Path(__file__).parent / "results"
_START_LIMIT_S = 300.0
_CHECK_LIMIT_S = 120.0
"""Generous: this is about what servers answer, not how fast."""
_SLOW_AREAS = ("context", "cancellation", "unicode")
"""Left out while faults are planted, because none of them is about these alone."""


def main() -> None:
    """Run the parts asked for; what was not run keeps its old results."""
    options = _options()
    gguf = ModelStore(resolve().cache_dir).pull("smollm2-135m")
    setting = Setting(gguf, options.threads, options.context, options.peers_dir, options.work_dir)
    options.work_dir.mkdir(parents=True, exist_ok=True)
    _RESULTS.mkdir(exist_ok=True)
    file = _RESULTS / "verify.json"
    results = _old(file, describe_machine({}))
    for engine in _engines(setting, options.targets):
        with _serving(engine, options.work_dir) as server:
            results.targets[engine.key] = _verify_target(engine, server)
        _save(results, file)
    if options.faults:
        with _serving(our_engine(setting, "auto"), options.work_dir) as server:
            _plant_faults(results, _url(server))
        _save(results, file)
    if options.compare:
        _compare(results, setting, options.work_dir)
        _save(results, file)
    print((_RESULTS / "verify.md").read_text())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--targets", nargs="*", default=["ours-auto", "llama-q8_0", "vllm-bf16"])
    parser.add_argument("--no-faults", dest="faults", action="store_false")
    parser.add_argument("--no-compare", dest="compare", action="store_false")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--peers-dir", type=Path, default=Path("build/peers"))
    parser.add_argument("--work-dir", type=Path, default=Path("build/verify"))
    return parser.parse_args()


def _old(file: Path, machine: Facts) -> Results:
    if not file.exists():
        return Results(machine=machine)
    old = msgspec.json.decode(file.read_bytes(), type=Results)
    return msgspec.structs.replace(old, machine=machine)


def _save(results: Results, file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    write_markdown(results, file.with_suffix(".md"))


def _engines(setting: Setting, keys: Sequence[str]) -> Iterator[Engine]:
    for key in keys:
        if key.startswith("ours-"):
            yield our_engine(setting, key.removeprefix("ours-"))
        else:
            (engine,) = prepare_peers(setting, {key})
            is_llama = engine.family == "llama.cpp"
            yield replace(engine, argv=[*engine.argv, "--metrics"]) if is_llama else engine


@contextmanager
def _serving(engine: Engine, work_dir: Path) -> Iterator[Server]:
    server = Server(engine, work_dir / f"verify-{engine.key}.log")
    server.start(_START_LIMIT_S)
    try:
        yield server
    finally:
        server.stop()


def _verify(urls: Sequence[str], config: VerifyConfig) -> Report:
    return asyncio.run(verify([read_target(url) for url in urls], config))


def _verify_target(engine: Engine, server: Server) -> TargetRow:
    print(f"verifying {engine.key} …", file=sys.stderr, flush=True)
    report = _verify([_url(server)], VerifyConfig(check_timeout_s=_CHECK_LIMIT_S))
    (_RESULTS / f"verify-{engine.key}.json").write_bytes(to_json(report))
    (target,) = report.targets
    return TargetRow(
        engine=engine.key,
        family=engine.family,
        server=target.server,
        shown=engine.shown,
        passed=target.count(Status.PASSED),
        skipped=[one.check for one in target.findings if one.status is Status.SKIPPED],
        failed={
            one.check: one.problems[0]
            for one in target.findings
            if one.status in (Status.FAILED, Status.BROKEN)
        },
        unchecked=list(target.unchecked_paths),
        elapsed_s=target.elapsed_s,
    )


def _plant_faults(results: Results, url: str) -> None:
    config = VerifyConfig(skip=_SLOW_AREAS, check_timeout_s=_CHECK_LIMIT_S)
    results.faults = [FaultRow("(nothing)", "the proxy alone", _failed_behind(url, (), config))]
    for name, fault in FAULTS.items():
        print(f"planting {name} …", file=sys.stderr, flush=True)
        failed = _failed_behind(url, [name], config)
        results.faults.append(FaultRow(name, fault.description, failed))


def _failed_behind(url: str, names: Sequence[str], config: VerifyConfig) -> list[str]:
    """The checks that fail through a proxy with these faults."""

    async def run() -> Report:
        proxy = FaultProxy(url, make_faults(names))
        await proxy.startup()
        try:
            return await verify([read_target(proxy.url)], config)
        finally:
            await proxy.shutdown()

    findings = asyncio.run(run()).findings
    return [one.check for one in findings if one.status in (Status.FAILED, Status.BROKEN)]


def _compare(results: Results, setting: Setting, work_dir: Path) -> None:
    (vllm,) = _engines(setting, ["vllm-bf16"])
    ours = our_engine(setting, "bf16")
    print("comparing ours-bf16 with vllm-bf16 …", file=sys.stderr, flush=True)
    with _serving(ours, work_dir) as left, _serving(vllm, work_dir) as right:
        config = VerifyConfig(only=("compare",), check_timeout_s=_CHECK_LIMIT_S)
        report = _verify([_url(left), _url(right)], config)
    (_RESULTS / "verify-comparison.json").write_bytes(to_json(report))
    assert report.comparison is not None
    clear, ties = report.comparison.differences
    results.comparison = {
        "positions": report.comparison.positions,
        "clear_differences": clear,
        "ties": ties,
        "prompts": len(report.comparison.prompts),
        "failed": [one.check for one in report.findings if one.status is Status.FAILED],
    }


def _url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


if __name__ == "__main__":
    main()

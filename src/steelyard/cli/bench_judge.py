"""Commands of `steelyard bench` that outlive a run: archive, history, gate, explain, schedule.

`bench` registers them. They read options and tell; `lab.judge` stores and judges.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from steelyard.cli.bench_judge_flags import ArchiveFlag, FactFlag, ToleranceFlag, UnlikeFlag
from steelyard.cli.options import examples

__all__ = [
    "BASELINE_EXAMPLES",
    "EXPLAIN_EXAMPLES",
    "GATE_EXAMPLES",
    "HISTORY_EXAMPLES",
    "LIST_EXAMPLES",
    "REGRESSED",
    "SCHEDULE_EXAMPLES",
    "baseline",
    "explain",
    "gate",
    "history",
    "list_results",
    "schedule",
]

REGRESSED = 4
UNCERTAIN = 5

BASELINE_EXAMPLES = examples(
    "steelyard bench baseline result.json",
    "steelyard bench baseline result.json --set monthly --fact driver=570.86 --note 'new kernel'",
    "steelyard bench baseline 12 --set monthly --replace",
    more="Where the server still runs on this machine, its flags, weights and threads are read "
    "from its process.",
)
LIST_EXAMPLES = examples("steelyard bench list", "steelyard bench list --set monthly")
HISTORY_EXAMPLES = examples(
    "steelyard bench history", "steelyard bench history --kind curve --html history.html"
)
GATE_EXAMPLES = examples(
    "steelyard bench gate result.json --set monthly",
    "steelyard bench gate result.json --set monthly --tolerance 10 --tolerance ttft_ms.p99=20",
    "steelyard bench gate result.json --set release --unlike engine_version --junit gate.xml",
    more="Exit status: 0 nothing got worse, 4 something certainly did, 5 nobody can say "
    "(--strict), 3 the measurement is INVALID; 1 and 2 for errors and wrong usage.",
)
EXPLAIN_EXAMPLES = examples(
    "steelyard bench explain result.json",
    "steelyard bench explain result.json --lone one_user.json --json explanation.json",
)
SCHEDULE_EXAMPLES = examples(
    "steelyard bench schedule http://127.0.0.1:8000 --folder /etc/steelyard/standard-test",
    "steelyard bench schedule http://127.0.0.1:8000 --folder nightly --day 15 --hour 4 "
    "-- --rate 5 --duration 300",
    more="Installs nothing: the answer says how.",
)

_SetName = Annotated[
    str | None, typer.Option("--set", metavar="NAME", help="What later results are held against.")
]


def baseline(
    result: Annotated[
        str, typer.Argument(metavar="RESULT", help="A result file, or the id of a stored result.")
    ],
    *,
    set_name: _SetName = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="The set consists of this result alone from now on.")
    ] = False,
    fact: FactFlag = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="For the change log.")] = "",
    force_invalid: Annotated[
        bool, typer.Option("--force-invalid", help="Take a result whose audit failed.")
    ] = False,
    archive: ArchiveFlag = None,
) -> None:
    """Keep a result in the archive, under a fingerprint of what was measured.

    Several results of a set tell how much results differ by chance: three make a good baseline.
    """
    from steelyard.cli.bench_archive import keep, open_archive
    from steelyard.contract.errors import InvalidRequest

    with open_archive(archive) as store:
        entry = keep(store, result, fact, note)
        if set_name is not None:
            if not (entry.is_valid or force_invalid):
                raise InvalidRequest(
                    "its audit failed, which makes a poor baseline", fix="add --force-invalid"
                )
            store.add_to_set(entry, set_name, replaces=replace)
        into = "" if set_name is None else f", in {set_name} with {len(store.members(set_name))}"
        print(f"stored as {entry.id}, fingerprint {entry.fingerprint.digest}{into}")


def list_results(*, set_name: _SetName = None, archive: ArchiveFlag = None) -> None:
    """Show what the archive holds."""
    from rich.console import Console

    from steelyard.cli.bench_archive import open_archive
    from steelyard.cli.bench_output import print_report
    from steelyard.lab.judge.history import list_report

    with open_archive(archive) as store:
        entries = store.entries() if set_name is None else store.members(set_name)
    print_report(list_report(entries), Console(highlight=False))


def history(
    *,
    set_name: _SetName = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Only of this one, or of those like it.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="run, curve, sweep, stress or repeats.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Curves over each other, and over time.")
    ] = None,
    archive: ArchiveFlag = None,
) -> None:
    """Show how numbers moved, and what was changed between results."""
    from rich.console import Console

    from steelyard.cli.bench_archive import open_archive, write_text
    from steelyard.cli.bench_output import print_report
    from steelyard.lab.judge.history import Remembered, history_figures, history_report
    from steelyard.lab.report import as_html

    with open_archive(archive) as store:
        entries = store.entries(fingerprint=fingerprint, kind=kind)
        if set_name is not None:
            entries = [entry for entry in entries if set_name in entry.sets]
        remembered = [Remembered(entry, store.load(entry)) for entry in entries]
    report = history_report(remembered)
    print_report(report, Console(highlight=False))
    if html is not None:
        write_text(html, as_html(report, history_figures(remembered)))
        print(f"wrote {html}")


def gate(
    result: Annotated[
        str, typer.Argument(metavar="RESULT", help="A result file, or the id of a stored result.")
    ],
    *,
    set_name: Annotated[str, typer.Option("--set", metavar="NAME", help="The baseline.")],
    tolerance: ToleranceFlag = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail too where it cannot be said for certain.")
    ] = False,
    start: Annotated[
        bool, typer.Option("--start", help="Where the set is empty, begin it with this result.")
    ] = False,
    unlike: UnlikeFlag = None,
    fact: FactFlag = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the checks.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="As JUnit XML.")] = None,
    archive: ArchiveFlag = None,
) -> None:
    """Hold a result against a baseline: the exit status says whether something got worse."""
    from rich.console import Console

    from steelyard.cli.bench_archive import keep, open_archive, read_side, write_text
    from steelyard.cli.bench_output import INVALID, print_report
    from steelyard.contract.errors import InvalidRequest
    from steelyard.lab.judge import compare_stored
    from steelyard.lab.judge.gate import (
        GateStatus,
        gate_json,
        junit_xml,
        parse_tolerances,
        pass_gate,
    )
    from steelyard.lab.judge.tables import gate_report

    every, named = parse_tolerances(tolerance or [])
    with open_archive(archive) as store:
        if not store.members(set_name):
            if not start:
                raise InvalidRequest(
                    "holds no result", param=set_name, fix=f"bench baseline RESULT --set {set_name}"
                )
            store.add_to_set(keep(store, result, fact, ""), set_name)
            print(f"{set_name} begins with this result")
            return
        candidate = read_side(result, store, fact)
        comparison = compare_stored(
            read_side(set_name, store, None).without(candidate),
            candidate,
            allowed=frozenset(unlike or ()),
        )
    judged = pass_gate(
        comparison, named, tolerance=0.05 if every is None else every, is_strict=strict
    )
    print_report(gate_report(judged), Console(highlight=False))
    for path, render in ((json, gate_json), (junit, junit_xml)):
        if path is not None:
            write_text(path, render(judged).decode())
    if not judged.is_valid:
        raise typer.Exit(INVALID)
    if not judged.is_passed:
        raise typer.Exit(REGRESSED if judged.named(GateStatus.REGRESSED) else UNCERTAIN)


def explain(
    result: Annotated[
        str, typer.Argument(metavar="RESULT", help="A result file, or the id of a stored result.")
    ],
    *,
    lone: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Result of a run with one user: what computing takes without load. Default: the "
            "fastest requests of the run.",
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Everything, as data.")] = None,
    archive: ArchiveFlag = None,
) -> None:
    """Name the bound that a run met: client, gateway, queue, KV memory, prefill or decode.

    Uses what the server's metrics said during the run, and says what cannot be known without.
    """
    from rich.console import Console

    from steelyard.cli.bench_archive import any_result, write_text
    from steelyard.cli.bench_output import print_report
    from steelyard.lab.explain import explain as explain_run
    from steelyard.lab.explain import explanation_json, explanation_report
    from steelyard.lab.judge import runs_of
    from steelyard.lab.result import read_result

    alone = None if lone is None else read_result(lone)
    for run in runs_of(any_result(result, archive)):
        explanation = explain_run(run, alone)
        print_report(explanation_report(explanation, run.name), Console(highlight=False))
    if json is not None:
        write_text(json, explanation_json(explanation).decode())


def schedule(
    *,
    url: Annotated[str, typer.Argument(metavar="URL", help="The server that is measured.")],
    measure: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- OPTIONS]",
            help="Of `steelyard bench run`. Default: --concurrency 4 --duration 300.",
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where the files go, and the script stays.")
    ],
    set_name: Annotated[str, typer.Option("--set", metavar="NAME")] = "standard-test",
    day: Annotated[int, typer.Option(min=1, max=28, help="Of the month.")] = 1,
    hour: Annotated[int, typer.Option(min=0, max=23)] = 3,
    minute: Annotated[int, typer.Option(min=0, max=59)] = 17,
    tolerance: ToleranceFlag = None,
    archive: ArchiveFlag = None,
) -> None:
    """Write files that repeat a standard test every month: systemd, cron, CI."""
    from steelyard.cli.bench_archive import write_text
    from steelyard.lab.judge.gate import parse_tolerances
    from steelyard.lab.judge.schedule import Schedule, check_schedule, make_schedule

    parse_tolerances(tolerance or [])
    folder = folder.absolute()
    files = make_schedule(
        Schedule(
            url=url,
            set_name=set_name,
            folder=folder,
            measure=tuple(measure or ()) or ("--concurrency", "4", "--duration", "300"),
            gate=tuple(word for text in tolerance or () for word in ("--tolerance", text)),
            program=sys.argv[0] if Path(sys.argv[0]).is_absolute() else "steelyard",
            archive=None if archive is None else archive.absolute(),
            day=day,
            hour=hour,
            minute=minute,
        )
    )
    for name, text in files.items():
        write_text(folder / name, text)
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)
    for name, how in check_schedule(folder, files):
        print(f"{name}: {how}")
    print(_HOW_TO_INSTALL.format(folder=folder))


_HOW_TO_INSTALL = """
Install one of them:
  systemd  sudo systemctl link {folder}/steelyard-standard-test.service
           sudo systemctl enable --now {folder}/steelyard-standard-test.timer
  cron     (crontab -l; cat {folder}/steelyard-standard-test.cron) | crontab -
  CI       copy {folder}/steelyard-standard-test.yml to .github/workflows/"""

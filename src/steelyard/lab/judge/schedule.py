"""Files that repeat a standard test by the calendar: systemd, cron, a CI service.

One shell script does the test (measure, store, hold against the baseline); the others start it,
each in its scheduler's own language. `make_schedule` writes texts, `check_schedule` reads them as
the schedulers will; nothing is installed.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from steelyard.contract.errors import InvalidRequest

__all__ = ["Schedule", "check_schedule", "make_schedule", "parse_cron"]

NAME = "steelyard-standard-test"
SCRIPT, SERVICE, TIMER = f"{NAME}.sh", f"{NAME}.service", f"{NAME}.timer"
CRON, WORKFLOW = f"{NAME}.cron", f"{NAME}.yml"

_PLAIN = re.compile(r"[\w@%+=:,./-]+")
_CHECK_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What is repeated, and when."""

    url: str
    set_name: str
    folder: Path
    """Where the files will lie, absolute: schedulers start the script from there."""
    measure: tuple[str, ...] = ()
    """Options of `steelyard bench run`."""
    gate: tuple[str, ...] = ()
    """Options of `steelyard bench gate`."""
    program: str = "steelyard"
    archive: Path | None = None
    """None: the user's own."""
    day: int = 1
    """Of the month, up to 28: every month has it."""
    hour: int = 3
    minute: int = 17

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("day", self.day, 1, 28),
            ("hour", self.hour, 0, 23),
            ("minute", self.minute, 0, 59),
        ):
            if not low <= value <= high:
                raise InvalidRequest(f"{value} is not within {low} to {high}", param=name)
        words = (self.url, self.set_name, self.program, *self.measure, *self.gate)
        if any("\n" in word or "\0" in word for word in (*words, str(self.folder))):
            raise InvalidRequest("holds a line break, which no scheduler takes")


def make_schedule(schedule: Schedule) -> dict[str, str]:
    """All files, by name."""
    return {
        SCRIPT: _script(schedule),
        SERVICE: _service(schedule),
        TIMER: _timer(schedule),
        CRON: _cron(schedule),
        WORKFLOW: _workflow(schedule),
    }


def check_schedule(folder: Path, files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Reads the files that were written there as their schedulers will: (what, how it was read).

    Raises `InvalidRequest` for one that its scheduler would refuse. A scheduler that is not
    installed cannot be asked, and the answer says so.
    """
    done = [(SCRIPT, _run(["sh", "-n", str(folder / SCRIPT)], "sh -n"))]
    units = [str(folder / SERVICE), str(folder / TIMER)]
    done.append(
        (
            f"{SERVICE}, {TIMER}",
            _run(["systemd-analyze", "verify", *units], "systemd-analyze verify"),
        )
    )
    for line in files[CRON].splitlines():
        if line and not line.startswith(("#", "SHELL=", "MAILTO=")):
            parse_cron(line)
    done.append((CRON, "parsed"))
    try:
        read = yaml.safe_load(files[WORKFLOW])
        parse_cron(read[True]["schedule"][0]["cron"] + " command")  # YAML 1.1 reads `on` as true
    except (yaml.YAMLError, KeyError, TypeError) as error:
        raise InvalidRequest(f"is no workflow: {error}", param=WORKFLOW) from error
    done.append((WORKFLOW, "parsed"))
    return done


def parse_cron(line: str) -> tuple[tuple[frozenset[int], ...], str]:
    """Minutes, hours, days, months, weekdays of a crontab's line, and its command.

    As POSIX has it, with the steps that all of today's crons take. Raises `InvalidRequest`.
    """
    parts = line.split(None, 5)
    if len(parts) < 6:
        raise InvalidRequest(f"{line!r} has {len(parts)} fields of 6", param="cron")
    fields = tuple(
        _cron_field(text, low, high)
        for text, (low, high) in zip(parts[:5], _CRON_RANGES, strict=True)
    )
    return fields, parts[5]


_CRON_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_CRON_PART = re.compile(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?")


def _cron_field(text: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _CRON_PART.fullmatch(part)
        if match is None:
            raise InvalidRequest(f"{part!r} is no time", param="cron")
        first = low if match[1] is None else int(match[1])
        last = int(match[2]) if match[2] else (high if match[1] is None or match[3] else first)
        step = int(match[3] or 1)
        if not low <= first <= last <= high or step < 1:
            raise InvalidRequest(f"{part!r} is not within {low} to {high}", param="cron")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _script(schedule: Schedule) -> str:
    steelyard = shlex.quote(schedule.program)
    archive = "" if schedule.archive is None else f" --archive {shlex.quote(str(schedule.archive))}"
    set_name = shlex.quote(schedule.set_name)
    return f"""\
#!/bin/sh
# The standard test: measure, remember, hold against the baseline. The exit status is the gate's:
# 0 kept, 4 regressed, 3 the measurement is INVALID.
# The first result of a set is its baseline: `steelyard bench baseline --replace` begins anew.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
{steelyard} bench run {shlex.quote(schedule.url)} {_joined(schedule.measure)}\\
  --name "standard test" --json "$folder/result.json" --quiet
{steelyard} bench baseline "$folder/result.json" --note "standard test"{archive}
{steelyard} bench gate "$folder/result.json" --set {set_name} --start {_joined(schedule.gate)}\\
  --junit "${{STEELYARD_GATE_JUNIT:-$folder/gate.xml}}"{archive}
"""


def _service(schedule: Schedule) -> str:
    return f"""\
[Unit]
Description=Standard test of {_unit(schedule.url)}
Documentation=man:systemd.timer(5)
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart=/bin/sh {_unit_word(str(schedule.folder / SCRIPT))}
"""


def _timer(schedule: Schedule) -> str:
    return f"""\
[Unit]
Description=Monthly standard test of {_unit(schedule.url)}

[Timer]
OnCalendar=*-*-{schedule.day:02} {schedule.hour:02}:{schedule.minute:02}:00
AccuracySec=1min
Persistent=true

[Install]
WantedBy=timers.target
"""


def _cron(schedule: Schedule) -> str:
    command = shlex.quote(str(schedule.folder / SCRIPT)).replace("%", "\\%")
    return f"""\
# For `crontab`: append this line to the output of `crontab -l`.
{schedule.minute} {schedule.hour} {schedule.day} * * {command}
"""


def _workflow(schedule: Schedule) -> str:
    content = {
        "name": "standard test",
        "on": {
            "schedule": [{"cron": f"{schedule.minute} {schedule.hour} {schedule.day} * *"}],
            "workflow_dispatch": {},
        },
        "concurrency": {"group": "standard-test", "cancel-in-progress": False},
        "jobs": {
            "measure": {
                # A machine of one's own: shared ones measure their other tenants.
                "runs-on": ["self-hosted", "standard-test"],
                "timeout-minutes": 120,
                "env": {"STEELYARD_GATE_JUNIT": "gate.xml"},
                "steps": [
                    {"name": "Standard test", "run": shlex.quote(str(schedule.folder / SCRIPT))},
                    {
                        "name": "Keep the verdict",
                        "if": "always()",
                        "uses": "actions/upload-artifact@v4",
                        "with": {"name": "gate", "path": "gate.xml"},
                    },
                ],
            }
        },
    }
    return yaml.safe_dump(content, sort_keys=False).replace("'on':", "on:")


def _joined(words: Iterable[str]) -> str:
    return "".join(f"{shlex.quote(word)} " for word in words)


def _unit(text: str) -> str:
    """systemd expands `%`."""
    return text.replace("%", "%%")


def _unit_word(text: str) -> str:
    """An argument in systemd.service(5): quoted like C, `%` and `$` doubled. (The name of a program
    may hold less, which is why a shell is started.)"""
    if _PLAIN.fullmatch(text):
        return _unit(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{_unit(escaped)}"'


def _run(command: list[str], spoken: str) -> str:
    if shutil.which(command[0]) is None:
        return f"not checked: {command[0]} is not installed"
    done = subprocess.run(  # noqa: S603 - a fixed program, on files of ours
        command, capture_output=True, text=True, timeout=_CHECK_S, check=False
    )
    if done.returncode:
        raise InvalidRequest(f"{spoken} refuses it: {(done.stderr or done.stdout).strip()}")
    return spoken

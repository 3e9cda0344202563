"""What the command says about itself, and how fast."""

import re
import subprocess
import sys

import pytest

from .stage import REAL, ROOT, Stage

COMMANDS = ("serve", "chat", "run", "model", "config")


def test_help_shows_commands_and_examples(stage: Stage) -> None:
    shown = stage.run("--help", program=REAL)
    assert shown.process.returncode == 0
    for word in (*COMMANDS, "$ steelyard serve", "--install-completion teaches"):
        assert word in re.sub(r"[\s`]+", " ", shown.stdout)
    assert shown.stderr == ""


@pytest.mark.parametrize("command", ["serve", "chat", "run"])
def test_every_main_command_has_examples_that_it_would_accept(command: str) -> None:
    from steelyard.cli.main import app

    (info,) = (c for c in app.registered_commands if c.callback.__name__ == command)
    lines = [line for line in (info.epilog or "").splitlines() if line.startswith("$ ")]
    assert len(lines) >= 3
    known = set(re.findall(r"--[a-z-]+", str(_help(command))))
    for line in lines:
        assert f"steelyard {command}" in line
        assert set(re.findall(r"--[a-z-]+", line)) <= known, line


def _help(command: str) -> str:
    done = subprocess.run([*REAL, command, "--help"], capture_output=True, text=True, timeout=30)
    return done.stdout


def test_help_imports_nothing_that_only_work_needs() -> None:
    code = "import sys, steelyard.cli.main; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    heavy = {"aiohttp", "jinja2", "numpy", "prometheus_client", "pydantic", "tokenizers", "torch"}
    assert not heavy & imported
    assert "steelyard.settings" not in imported


def test_the_shell_can_complete(stage: Stage) -> None:
    stage.variables.update(
        _STEELYARD_COMPLETE="complete_bash", COMP_WORDS="steelyard ser", COMP_CWORD="1"
    )
    assert stage.run(program=REAL).stdout.split() == ["serve"]


def test_the_version_is_told(stage: Stage) -> None:
    assert re.fullmatch(r"steelyard \d+\.\d+\S*\n", stage.run("--version", program=REAL).stdout)


def test_no_command_shows_the_help(stage: Stage) -> None:
    shown = stage.run(program=REAL)
    assert "Usage: steelyard" in shown.stdout + shown.stderr

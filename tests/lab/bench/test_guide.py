"""`docs/bench.md` shows every option of the commands that measure."""

from pathlib import Path

import pytest
import typer.main

from steelyard.cli.bench import app

PAGE = (Path(__file__).parents[3] / "docs" / "bench.md").read_text()


@pytest.mark.parametrize("name", ["run", "curve", "sweep", "stress"])
def test_every_option_is_shown(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    for parameter in command.params:
        names = [n for n in (*parameter.opts, *parameter.secondary_opts) if n.startswith("--")]
        if names and names != ["--help"]:
            assert any(n in PAGE for n in names), names

"""The reference is generated, so it names everything there is and cannot fall behind unseen."""

from pathlib import Path

import pytest
import typer

from steelyard.cli.reference import (
    PAGES,
    commands_page,
    errors_page,
    main,
    metrics_page,
    settings_page,
)
from steelyard.contract.errors import error_classes
from steelyard.settings.keys import keys
from steelyard.telemetry import CATALOGUE


def test_the_settings_page_names_every_key() -> None:
    page = settings_page()
    for key in keys().values():
        assert f"| `{key.path[-1]}` | {key.expects} |" in page
        assert key.description in page


def test_the_metrics_page_names_every_metric_and_label() -> None:
    lines = metrics_page().splitlines()
    for spec in CATALOGUE:
        (line,) = [
            line for line in lines if line.startswith(f"| `{spec.name}` | {spec.kind.value}")
        ]
        assert all(f"`{label}`" in line for label in spec.labels)


def test_the_errors_page_names_every_code_below_the_root() -> None:
    page = errors_page()
    for code, cls in error_classes().items():
        if cls.__module__ == "steelyard.contract.errors" and code != "error":
            assert f"| `{code}` |" in page


def test_the_commands_page_names_commands_options_and_arguments() -> None:
    app = typer.Typer()
    sub = typer.Typer(help="Deals with models.")
    app.add_typer(sub, name="model")

    @sub.command()
    def pull(name: str, force: bool = typer.Option(False, help="Fetch again.")) -> None:
        """Fetch a model."""

    page = commands_page(app)
    assert "## steelyard model pull" in page
    assert "Fetch a model." in page
    assert "| `NAME` |" in page
    assert "| `--force`" in page
    assert "Fetch again." in page


def test_check_notices_a_page_that_is_missing_or_stale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--directory", str(tmp_path)]
    assert main(["--check", *at]) == 1
    assert main(at) == 0
    assert {path.name for path in tmp_path.iterdir()} == set(PAGES)
    assert main(["--check", *at]) == 0
    (tmp_path / "errors.md").write_text("old")
    capsys.readouterr()
    assert main(["--check", *at]) == 1
    assert "errors.md is out of date" in capsys.readouterr().err

"""`steelyard config` shows, checks and describes; its exit status is fit for scripts."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from steelyard.cli.config import app
from steelyard.settings import Deployment, resolve
from steelyard.settings.keys import ANY, keys


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEELYARD_CONFIG", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_show_prints_every_key_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_GATEWAY__PORT", "9000")
    result = _run("show", "--set", "kv_cache.memory=2GiB")
    assert result.exit_code == 0
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[1:]}
    assert lines.keys() == {key.name for key in keys().values() if ANY not in key.path}
    assert lines["gateway.port"] == ["9000", "STEELYARD_GATEWAY__PORT"]
    assert lines["kv_cache.memory"] == ["2GiB", "--set", "kv_cache.memory"]
    assert lines["model"] == ["smollm2-135m", "default"]


def test_show_names_what_the_file_named(tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text("tenants:\n  named:\n    team.a: {max_tokens: 5}\n")
    result = _run("show", "--changed", "--config", str(file))
    *_, line = result.stdout.splitlines()
    assert line.split() == ["tenants.named.team.a.max_tokens", "5", f"{file}:3"]
    result = _run("show", "--changed", "--yaml", "--config", str(file))
    assert yaml.safe_load(result.stdout) == {"tenants": {"named": {"team.a": {"max_tokens": 5}}}}


def test_show_as_json_gives_values_and_layers() -> None:
    result = _run("show", "--json", "--set", "gateway.cors.origins=https://a")
    shown = json.loads(result.stdout)
    assert shown["gateway.cors.origins"] == {
        "value": ["https://a"],
        "from": "--set gateway.cors.origins",
        "layer": "flag",
    }
    assert shown["gateway.port"] == {"value": 8000, "from": "default", "layer": "default"}


def test_show_as_yaml_is_a_deployment_file_that_means_the_same(tmp_path: Path) -> None:
    sets = ["model=no", "kv_cache.memory=3MiB", "batching.step_stretch=null", "cache_dir=/x"]
    result = _run("show", "--yaml", *(part for text in sets for part in ("--set", text)))
    file = tmp_path / "deploy.yaml"
    file.write_text(result.stdout)
    again = resolve(file=file, environ={}).deployment
    assert again == resolve(sets=sets, environ={}).deployment


def test_show_changed_leaves_defaults_out() -> None:
    result = _run("show", "--changed", "--yaml", "--set", "gateway.port=9000")
    assert yaml.safe_load(result.stdout) == {"gateway": {"port": 9000}}
    assert _run("show", "--changed", "--yaml").stdout == ""


def test_check_accepts_what_can_work(tmp_path: Path) -> None:
    file = tmp_path / "deploy.yaml"
    file.write_text("gateway: {port: 9000}\n")
    assert _run("check", str(file)).exit_code == 0


@pytest.mark.parametrize("command", ["check", "show"])
def test_problems_are_all_printed_and_the_status_is_one(command: str, tmp_path: Path) -> None:
    file = tmp_path / "deploy.yaml"
    file.write_text("gateway: {port: x}\nbatching: {min_batch: 2}\n")
    arguments = [str(file)] if command == "check" else ["--config", str(file)]
    result = _run(command, *arguments)
    assert result.exit_code == 1
    assert "gateway.port: 'x' is not valid here" in result.stderr
    assert "batching.min_batch: 2 has no effect" in result.stderr
    assert "2 problems." in result.stderr
    assert "Traceback" not in result.output


def test_check_takes_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEELYARD_CONFIG", str(tmp_path / "none.yaml"))
    result = _run("check")
    assert result.exit_code == 1
    assert "does not exist" in result.stderr


def test_two_formats_at_once_are_refused() -> None:
    assert _run("show", "--json", "--yaml").exit_code == 2


def test_the_schema_describes_every_key() -> None:
    schema = json.loads(_run("schema").stdout)
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == list(Deployment.model_fields)
    for definition in [schema, *schema["$defs"].values()]:
        assert definition["description"]
        for entry in definition["properties"].values():
            assert entry.get("description") or "$ref" in entry

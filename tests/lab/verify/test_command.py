"""`steelyard verify` as users run it: what it prints and writes, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from steelyard.lab.verify import all_claims
from tests.gateway.doors import Door

DOCS = (Path(__file__).parents[3] / "docs" / "verify.md").read_text()


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "steelyard.cli", "verify", *arguments]
    env = {"PATH": "", "COLUMNS": "200", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)


def test_all_well_ends_with_0_and_writes_the_reports(door: Door, tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "r.json"), "--junit", str(tmp_path / "r.xml"))
    done = run(door.url, "--only", "models", "--only", "stops.one", *files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stops.one.chat" in done.stdout and "5 passed" in done.stdout
    decoded = json.loads((tmp_path / "r.json").read_text())
    assert len(decoded["targets"][0]["findings"]) == 5
    assert ElementTree.parse(tmp_path / "r.xml").getroot().tag == "testsuites"


def test_a_failure_ends_with_1_and_says_what_where_and_how(door: Door) -> None:
    done = run(door.url, "--only", "sampling.top-k")
    assert done.returncode == 1
    for said in ("1 failed", "sampling.top-k", "hint:", "asked: POST /v1/completions", "got:"):
        assert said in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("http://127.0.0.1:1",), "cannot connect"),
        (("URL", "--only", "no-such-check"), "no check is called no-such-check"),
        (("ftp://x",), "no URL of a server"),
        ((), "name one server, or two"),
        (("URL", "--api-key-env", "NOT_SET"), "NOT_SET is not set"),
        (("URL", "--model", "a", "--model", "b"), "more models than servers"),
        (("URL", "--model", "unknown-model", "--only", "chat.shape"), None),
    ],
)
def test_a_wrong_command_line_ends_with_2(
    door: Door, arguments: tuple[str, ...], said: str | None
) -> None:
    done = run(*(door.url if one == "URL" else one for one in arguments))
    if said is None:  # a model that is not served fails every check about it
        assert done.returncode == 1
    else:
        assert done.returncode == 2
        assert said in " ".join(done.stderr.split())


def test_two_servers_are_compared(door: Door) -> None:
    done = run(door.url, door.url, "--only", "compare.hello", "--only", "compare.counting")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 clearly different, 0 ties" in done.stdout


def test_the_list_needs_no_server_and_names_everything() -> None:
    done = run("--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        claim.name for claim in all_claims()
    ]


def test_the_key_of_the_named_variable_is_sent_and_never_shown(door: Door, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    done = run(
        door.url, "--only", "chat.shape", "--api-key-env", "KEY", "--json", str(file), KEY="s3cret"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "s3cret" not in done.stdout + done.stderr + file.read_text()


def test_every_area_and_option_is_documented() -> None:
    areas = {claim.name.partition(".")[0] for claim in all_claims()}
    for word in (*areas, "--only", "--skip", "--api-key-env", "--tie-nats", "steelyard.verify/1"):
        assert f"`{word}`" in DOCS, word

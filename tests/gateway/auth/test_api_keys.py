"""API keys: made at random, kept as hashes, read again whenever their file changes."""

import datetime
import hmac
import re
from pathlib import Path

import pytest

from steelyard.contract.errors import SettingsError
from steelyard.gateway.auth import api_keys
from steelyard.gateway.auth.api_keys import (
    KeyTable,
    entry_line,
    hash_key,
    new_key,
    parse_keys,
)
from steelyard.gateway.auth.building import build_guard
from steelyard.gateway.auth.config import AuthConfig
from steelyard.gateway.auth.refused import CredentialsRefused
from steelyard.gateway.caller import Access
from steelyard.telemetry import Metrics

from ..conftest import OpenDoor
from ..wire import get
from .issuer import NOW_S
from .keyring import Keyring, bearer


def table(keyring: Keyring, *, strict: bool = False) -> KeyTable:
    return KeyTable(
        lambda: parse_keys(keyring.path.read_bytes()),
        unix_time=lambda: NOW_S,
        require_model_grant=strict,
    )


def test_keys_are_random_and_their_entries_do_not_hold_them(keyring: Keyring) -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(re.fullmatch(r"sk-[0-9a-f]{12}-[\w-]{43}", key) for key in keys)
    text = keyring.path.read_text()
    assert keyring.infer not in text
    assert keyring.infer.rpartition("-")[2] not in text
    assert keyring.path.read_text().count("\n") == 3


async def test_a_key_names_its_tenant_plan_and_grants(keyring: Keyring) -> None:
    key = keyring.add("team-c", plan="gold", scopes=("llm:infer", "model:small"))
    caller = await table(keyring).identify(key)
    assert (caller.tenant, caller.plan, caller.models) == ("team-c", "gold", {"small"})
    assert caller.may(Access.INFER) and not caller.may(Access.ADMIN)


async def test_a_key_of_another_maker_works_as_well(keyring: Keyring) -> None:
    old = "sk-my-old-vllm-key-with-32-letters"
    keyring.add("team-d", key=old)
    assert (await table(keyring).identify(old)).tenant == "team-d"
    assert old not in keyring.path.read_text()


async def test_a_key_that_is_wrong_in_one_letter_is_refused(keyring: Keyring) -> None:
    for at in range(len(keyring.infer)):
        letter = "0" if keyring.infer[at] != "0" else "1"
        with pytest.raises(CredentialsRefused) as refused:
            await table(keyring).identify(keyring.infer[:at] + letter + keyring.infer[at + 1 :])
        assert refused.value.reason == "key"


async def test_hashes_are_compared_in_constant_time_even_for_unknown_ids(
    keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    compare_digest = hmac.compare_digest

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return compare_digest(a, b)

    monkeypatch.setattr(api_keys.hmac, "compare_digest", compare)
    await table(keyring).identify(keyring.infer)
    for key in (new_key(), "x"):
        with pytest.raises(CredentialsRefused):
            await table(keyring).identify(key)
    assert len(compared) == 3
    assert all(len(a) == len(b) == 64 for a, b in compared)


async def test_an_expired_key_is_refused(keyring: Keyring) -> None:
    moment = datetime.datetime.fromtimestamp(NOW_S, datetime.UTC)
    second = datetime.timedelta(seconds=1)
    late, early = (keyring.add("t", expires=moment + d) for d in (second, 0 * second))
    await table(keyring).identify(late)
    with pytest.raises(CredentialsRefused) as refused:
        await table(keyring).identify(early)
    assert refused.value.reason == "expired"


async def test_models_can_be_made_a_matter_of_grants_alone(keyring: Keyring) -> None:
    every = keyring.add("t", scopes=("llm:infer", "model:*"))
    strict = table(keyring, strict=True)
    assert not (await strict.identify(keyring.infer)).may_use("small")
    assert (await strict.identify(every)).may_use("small")
    assert (await table(keyring).identify(keyring.infer)).may_use("small")


def test_an_entry_survives_being_written_and_read() -> None:
    moment = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    key_id, digest = hash_key(new_key())
    entry = api_keys.KeyEntry(
        id=key_id, sha256=digest, tenant="t", scopes=("a", "b"), plan="p", expires=moment, note="n"
    )
    assert parse_keys(entry_line(entry).encode()) == {key_id: entry}


GOOD = entry_line(api_keys.KeyEntry(id="0" * 12, sha256="0" * 64, tenant="t"))


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "null",
        "{}",
        GOOD.replace('"t"', '""'),
        GOOD.replace('"t"', '"a b"'),
        GOOD.replace('"t"', "7"),
        GOOD.replace("0" * 64, "0" * 63),
        GOOD.replace("0" * 64, "sk-secret-secret-secret"),
        GOOD.replace("}", ',"scope":"llm:admin"}'),
        GOOD.replace("}", ',"expires":"tomorrow"}'),
        GOOD.replace("}", ',"expires":"2030-01-01T00:00:00"}'),
        GOOD.strip(),
        '{"id":' + "[" * 100_000,
    ],
)
def test_a_file_with_a_bad_line_is_refused_by_its_number_alone(line: str) -> None:
    data = f"# keys\n\n{GOOD}{line}\n".encode()
    with pytest.raises(ValueError, match=r"^line 4: ") as error:
        parse_keys(data)
    assert "secret" not in str(error.value)
    assert len(str(error.value)) < 200


def test_a_missing_or_unreadable_file_is_a_problem_of_the_settings(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        config = AuthConfig(mode="api_keys", keys_file=path)
        with pytest.raises(SettingsError, match=says) as error:
            build_guard(config, Metrics().access)
        assert error.value.param == "gateway.auth.keys_file"


def test_a_changed_file_counts_within_moments(keyring: Keyring, make_door: OpenDoor) -> None:
    door = make_door(keyring.gateway())
    late = new_key()
    assert get(door, "/v1/models", bearer(late)).status == 401
    keyring.add("team-z", key=late)
    door.wait_for(lambda: get(door, "/v1/models", bearer(late)).status == 200)
    kept = [line for line in keyring.path.read_text().splitlines() if "team-z" not in line]
    replacement = keyring.path.with_suffix(".new")
    replacement.write_text("\n".join(kept) + "\n")
    replacement.rename(keyring.path)
    door.wait_for(lambda: get(door, "/v1/models", bearer(late)).status == 401)
    assert get(door, "/v1/models", bearer(keyring.infer)).status == 200
    assert door.metric('steelyard_auth_file_reads_total{outcome="ok"}') == 2


def test_a_slip_in_the_file_locks_nobody_out(
    keyring: Keyring, make_door: OpenDoor, caplog: pytest.LogCaptureFixture
) -> None:
    door = make_door(keyring.gateway())
    good = keyring.path.read_bytes()
    failed = 'steelyard_auth_file_reads_total{outcome="failed"}'
    keyring.path.write_bytes(good + b"{oops\n")
    door.wait_for(lambda: door.metric(failed) == 1)
    assert get(door, "/v1/models", bearer(keyring.infer)).status == 200
    assert "line 4" in caplog.text and "stays in force" in caplog.text
    keyring.path.unlink()
    door.wait_for(lambda: door.metric(failed) == 2)
    assert get(door, "/v1/models", bearer(keyring.infer)).status == 200
    keyring.path.write_bytes(b"")
    door.wait_for(lambda: get(door, "/v1/models", bearer(keyring.infer)).status == 401)

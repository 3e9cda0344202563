"""A service that stops or dies in the middle of a batch goes on where it was."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import openai
import pytest

from steelyard.backends.fake import FakeEngine
from steelyard.contract.errors import SettingsError
from steelyard.gateway.app import build_gateway, serve
from steelyard.gateway.batches.archive import Archive
from steelyard.gateway.batches.config import BatchesConfig
from steelyard.gateway.batches.ledger import Ledger
from steelyard.gateway.models import ServedModel

from ..byte_text import ByteText
from ..doors import Door, engine_config, open_door
from .shelf import batching, chat_line, client_of, created, ended, results

LINES = [chat_line(f"{at}", max_tokens=4) for at in range(60)]
IDS = [line["custom_id"] for line in LINES]


def finished_lines(folder: Path, batch_id: str) -> set[int]:
    with closing(Ledger(folder / "ledger.sqlite")) as ledger:
        return ledger.finished_lines(batch_id)


def asked(door: Door) -> list[str]:
    """Prompts that came to the engine."""
    return [bytes(i for i in r.prompt_ids if i < 256).decode() for r in door.engine.recent_requests]


def test_a_restart_in_the_middle_loses_no_line_and_does_none_twice(folder: Path) -> None:
    config = batching(folder, concurrency=3)
    with open_door(config, engine_config(itl_s=0.004)) as door, client_of(door) as client:
        batch = created(client, LINES)
        door.wait_for(lambda: client.batches.retrieve(batch.id).request_counts.completed > 10)
    before = finished_lines(folder, batch.id)
    assert 10 < len(before) < len(LINES)
    with open_door(config) as door, client_of(door) as client:
        batch = ended(client, batch.id)
        assert (batch.status, batch.request_counts.completed) == ("completed", len(LINES))
        found = results(client, batch.output_file_id)
        prompts = asked(door)
    assert [one["custom_id"] for one in found] == IDS
    assert len(prompts) == len(LINES) - len(before)
    for number in before:
        assert not any(f"This is {IDS[number - 1]}." in prompt for prompt in prompts)


def test_a_batch_cancelled_before_a_restart_is_cancelled_after_it(folder: Path) -> None:
    config = batching(folder, concurrency=1)
    with open_door(config, engine_config(itl_s=1.0)) as door, client_of(door) as client:
        batch = created(client, LINES)
        door.wait_for(lambda: client.batches.retrieve(batch.id).status == "in_progress")
    with closing(Ledger(folder / "ledger.sqlite")) as ledger:
        ledger.cancel("default", batch.id, int(time.time()))
    with open_door(config) as door, client_of(door) as client:
        batch = ended(client, batch.id)
        assert batch.status == "cancelled"
        assert [one["custom_id"] for one in results(client, batch.error_file_id)] == IDS
        assert not door.engine.recent_requests


def test_an_input_never_checked_before_a_cancelling_is_checked_after_the_restart(
    folder: Path,
) -> None:
    with open_door(batching(folder)) as door, client_of(door) as client:
        good = created(client, LINES)
        bad = created(client, ["no object"])
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db, db:
        for batch in (good, bad):  # as if the service had died at once
            record = {"batch": batch.to_dict() | {"status": "cancelling"}, "tenant": "default"}
            db.execute(
                "UPDATE batches SET is_open = 1, record = ? WHERE id = ?",
                (json.dumps(record | {"plan": None, "models": None}).encode(), batch.id),
            )
        db.execute("DELETE FROM results")
    with open_door(batching(folder)) as door, client_of(door) as client:
        assert ended(client, good.id).status == "cancelled"
        assert ended(client, bad.id).status == "failed"


def test_a_batch_whose_day_passed_while_nobody_served_expires(folder: Path) -> None:
    config = batching(folder, concurrency=1)
    with open_door(config, engine_config(itl_s=1.0)) as door, client_of(door) as client:
        batch = created(client, LINES)
        door.wait_for(lambda: client.batches.retrieve(batch.id).status == "in_progress")
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db, db:
        db.execute(
            "UPDATE batches SET record = CAST(replace(CAST(record AS TEXT), ?, ?) AS BLOB)",
            (f'"expires_at":{batch.expires_at}', '"expires_at":1'),
        )
    with open_door(config) as door, client_of(door) as client:
        batch = ended(client, batch.id)
        assert batch.status == "expired"
        rest = results(client, batch.error_file_id)
        assert {one["error"]["code"] for one in rest} == {"batch_expired"}


def test_what_a_crash_left_half_written_is_removed_at_the_start(folder: Path) -> None:
    with open_door(batching(folder)) as door, client_of(door) as client:
        kept = client.files.create(file=("in.jsonl", b"{}"), purpose="batch")
    (folder / "files" / "file-of-nobody").write_bytes(b"x")
    (folder / "incoming" / "upload-half").write_bytes(b"x")
    with open_door(batching(folder)) as door, client_of(door) as client:
        assert [path.name for path in (folder / "files").iterdir()] == [kept.id]
        assert list((folder / "incoming").iterdir()) == []
        assert client.files.content(kept.id).content == b"{}"


async def test_two_services_do_not_share_a_folder(folder: Path) -> None:
    first, second = (Archive(BatchesConfig(folder=folder)) for _ in range(2))
    await first.startup()
    with pytest.raises(SettingsError, match="in use") as error:
        await second.startup()
    assert error.value.param == "gateway.batches.folder"
    await first.shutdown()
    await second.startup()
    await second.shutdown()


_SERVICE = """
import asyncio, sys
from pathlib import Path
from tests.gateway.batches.test_restarts import service
asyncio.run(service(Path(sys.argv[1])))
"""


async def service(folder: Path) -> None:
    """A slow door that says its port and serves until it is killed."""
    model = ServedModel("fake", FakeEngine(engine_config(itl_s=0.004)), ByteText(), 0)
    gateway = build_gateway(batching(folder, concurrency=3), [model])
    await serve(gateway, lambda _, port: print(port, flush=True))


def test_a_killed_service_loses_no_line_and_repeats_none_in_the_output(folder: Path) -> None:
    batch_id, killed = "", 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVICE, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            batch_id = batch_id or created(client, LINES).id
            wanted = killed + 5
            while client.batches.retrieve(batch_id).request_counts.completed < wanted:
                time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        after = len(finished_lines(folder, batch_id))
        assert after >= wanted
        killed = after
    assert killed < len(LINES)
    with open_door(batching(folder)) as door, client_of(door) as client:
        batch = ended(client, batch_id)
        found = results(client, batch.output_file_id)
        assert len(door.engine.recent_requests) == len(LINES) - killed
    assert [one["custom_id"] for one in found] == IDS

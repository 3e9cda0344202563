"""Batches through the official client: every line gets its result, and others come first."""

from pathlib import Path

import openai
import pytest

from steelyard.backends.fake import Fault, FaultKind
from steelyard.gateway.config import GatewayConfig
from steelyard.gateway.limits.config import TenantRules, TenantsConfig
from steelyard.policies.budgets import Limits

from ..auth.keyring import Keyring
from ..conftest import OpenDoor
from ..doors import Door
from .shelf import CHAT, TEXT, batching, chat_line, client_of, created, ended, results


def test_every_line_gets_the_answer_it_would_get_alone(client: openai.OpenAI) -> None:
    lines = [chat_line(f"line-{at}", seed=at, max_tokens=8) for at in range(30)]
    batch = created(client, lines)
    assert (batch.object, batch.status, batch.endpoint) == ("batch", "validating", CHAT)
    batch = ended(client, batch.id)
    assert (batch.status, batch.error_file_id) == ("completed", None)
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (30, 30, 0)
    found = results(client, batch.output_file_id)
    assert [one["custom_id"] for one in found] == [line["custom_id"] for line in lines]
    for line, one in zip(lines, found, strict=True):
        alone = client.chat.completions.create(**line["body"])
        assert one["error"] is None
        assert one["response"]["status_code"] == 200
        assert one["response"]["body"]["choices"][0]["message"]["content"] == (
            alone.choices[0].message.content
        )
    assert client.files.retrieve(batch.output_file_id).purpose == "batch_output"


def test_text_completions_work_as_well(client: openai.OpenAI) -> None:
    line = {"custom_id": "a", "method": "POST", "url": TEXT}
    batch = created(client, [line | {"body": {"model": "fake", "prompt": "x"}}], TEXT)
    (one,) = results(client, ended(client, batch.id).output_file_id)
    assert one["response"]["body"]["object"] == "text_completion"


def test_lines_that_cannot_work_are_in_the_error_file(client: openai.OpenAI) -> None:
    lines = [
        chat_line("good"),
        chat_line("unknown", model="other"),
        chat_line("streamed", stream=True),
        chat_line("hot", temperature=9),
    ]
    batch = ended(client, created(client, lines).id)
    counts = batch.request_counts
    assert (batch.status, counts.completed, counts.failed) == ("completed", 1, 3)
    found = {one["custom_id"]: one["response"] for one in results(client, batch.error_file_id)}
    assert {name: one["status_code"] for name, one in found.items()} == {
        "unknown": 404,
        "streamed": 400,
        "hot": 400,
    }
    assert found["hot"]["body"]["error"]["param"] == "temperature"


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([chat_line("a"), chat_line("a")], "duplicate_custom_id"),
        ([chat_line("a", url=TEXT)], "invalid_url"),
        ([chat_line("a") | {"method": "GET"}], "invalid_method"),
        (["no object"], "invalid_json_line"),
        ([chat_line("a", user="u" * 2000)], "line_too_long"),
        ([chat_line(f"{at}") for at in range(6)], "too_many_lines"),
    ],
)
def test_an_input_that_is_not_valid_runs_nothing(
    folder: Path, make_door: OpenDoor, lines: list[object], code: str
) -> None:
    door = make_door(batching(folder, max_lines=5, line_bytes=1024))
    client = client_of(door)
    batch = ended(client, created(client, lines).id)
    assert batch.status == "failed"
    assert batch.errors.data[-1].code == code
    assert batch.errors.data[-1].line == len(lines)
    assert not door.engine.recent_requests


def test_lines_go_behind_everybody_and_few_at_a_time(folder: Path, make_door: OpenDoor) -> None:
    door = make_door(batching(folder, concurrency=3), itl_s=0.001)
    client = client_of(door)
    seen: list[int] = []
    batch = created(client, [chat_line(f"{at}", priority=-5) for at in range(40)])
    while client.batches.retrieve(batch.id).status != "completed":
        seen.append(door.gateway.load["in_flight"])
    assert max(seen) == 3
    client.chat.completions.create(**chat_line("now")["body"], extra_body={"priority": 2**31 - 1})
    *of_batch, other = (request.priority for request in door.engine.recent_requests)
    assert len(of_batch) == 40
    assert min(of_batch) > other


def test_a_line_whose_engine_fails_is_tried_again(door: Door, client: openai.OpenAI) -> None:
    door.engine.inject(Fault(FaultKind.DROP, requests=2))
    batch = ended(client, created(client, [chat_line("a"), chat_line("b")]).id)
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)


def test_lines_wait_for_their_tenants_budget(folder: Path, make_door: OpenDoor) -> None:
    limits = Limits(concurrent_requests=1)
    tenants = TenantsConfig(default=TenantRules(limits=limits))
    config = batching(folder, GatewayConfig(port=0, tenants=tenants), concurrency=2)
    client = client_of(make_door(config))
    batch = ended(client, created(client, [chat_line("a"), chat_line("b")]).id)
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)


def test_a_cancelled_batch_keeps_what_it_has_and_names_the_rest(
    folder: Path, make_door: OpenDoor
) -> None:
    door = make_door(batching(folder, concurrency=2), itl_s=0.005)
    client = client_of(door)
    batch = created(client, [chat_line(f"{at}") for at in range(200)])
    door.wait_for(lambda: client.batches.retrieve(batch.id).request_counts.completed > 3)
    assert client.batches.cancel(batch.id).status == "cancelling"
    batch = ended(client, batch.id)
    assert batch.status == "cancelled"
    assert batch.cancelling_at <= batch.cancelled_at
    done = [one["custom_id"] for one in results(client, batch.output_file_id)]
    rest = results(client, batch.error_file_id)
    assert sorted(done + [one["custom_id"] for one in rest], key=int) == [
        f"{at}" for at in range(200)
    ]
    assert {one["error"]["code"] for one in rest} == {"batch_cancelled"}
    door.wait_for(lambda: door.gateway.load["in_flight"] == 0)
    with pytest.raises(openai.BadRequestError, match="cancelled already"):
        client.batches.cancel(batch.id)


def test_batches_are_listed_bounded_and_each_tenants_own(
    folder: Path, tmp_path: Path, make_door: OpenDoor
) -> None:
    keyring = Keyring(tmp_path)
    door = make_door(batching(folder, keyring.gateway(), open_batches=2), itl_s=0.05)
    own, other = client_of(door, keyring.infer), client_of(door, keyring.add("team-c"))
    ids = [created(own, [chat_line("a", max_tokens=100)]).id for _ in range(2)]
    with pytest.raises(openai.RateLimitError, match="limit is 2"):
        created(own, [chat_line("a")])
    assert [batch.id for batch in own.batches.list(limit=1)] == ids[::-1]
    assert list(other.batches.list()) == []
    for attempt in (other.batches.retrieve, other.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            attempt(ids[0])
    with pytest.raises(openai.BadRequestError, match="not ended"):
        own.files.delete(own.batches.retrieve(ids[0]).input_file_id)


def test_lines_use_no_model_that_their_batchs_creator_may_not_use(
    folder: Path, tmp_path: Path, make_door: OpenDoor
) -> None:
    keyring = Keyring(tmp_path)
    key = keyring.add("team-s", scopes=("llm:infer", "model:small"))
    door = make_door(batching(folder, keyring.gateway()), names=("large", "small"))
    client = client_of(door, key)
    lines = [chat_line("yes", model="small"), chat_line("no", model="large")]
    batch = ended(client, created(client, lines).id)
    (one,) = results(client, batch.error_file_id)
    assert (one["custom_id"], one["response"]["status_code"]) == ("no", 403)
    assert batch.request_counts.completed == 1


def test_small_batches_do_not_wait_for_the_end_of_large_ones(
    folder: Path, make_door: OpenDoor
) -> None:
    door = make_door(batching(folder, concurrency=2), itl_s=0.005)
    client = client_of(door)
    large = created(client, [chat_line(f"{at}") for at in range(500)])
    small = created(client, [chat_line("only")])
    assert ended(client, small.id).status == "completed"
    assert client.batches.retrieve(large.id).status == "in_progress"

"""Files: sent, listed, read and deleted by the official client; bounded; each tenant's own."""

import socket
from pathlib import Path

import openai
import pytest

from steelyard.gateway.config import GatewayConfig

from ..auth.keyring import Keyring
from ..conftest import OpenDoor
from ..doors import Door
from ..wire import get
from .shelf import batching, client_of

CONTENT = b'{"any": "lines"}\n' * 50_000
"""Larger than what is read and sent at once."""


def send(client: openai.OpenAI, content: bytes = b"{}\n", name: str = "in.jsonl") -> str:
    return client.files.create(file=(name, content), purpose="batch").id


def test_a_file_comes_back_as_it_was_sent(client: openai.OpenAI, folder: Path) -> None:
    sent = client.files.create(file=("in.jsonl", CONTENT), purpose="batch")
    assert (sent.object, sent.filename, sent.purpose) == ("file", "in.jsonl", "batch")
    assert sent.bytes == len(CONTENT)
    assert client.files.retrieve(sent.id) == sent
    assert client.files.content(sent.id).content == CONTENT
    assert list((folder / "incoming").iterdir()) == []


def test_files_are_listed_newest_first_and_by_pages(client: openai.OpenAI) -> None:
    ids = [send(client, name=f"{at}.jsonl") for at in range(5)]
    page = client.files.list(limit=2)
    assert [file.id for file in page.data] == [ids[4], ids[3]]
    assert page.has_more
    assert [file.id for file in page] == ids[::-1]
    assert [file.id for file in client.files.list(order="asc")] == ids
    assert list(client.files.list(purpose="batch_output")) == []


def test_a_deleted_file_is_gone(client: openai.OpenAI, folder: Path) -> None:
    file_id = send(client)
    assert client.files.delete(file_id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file_id)
    assert list((folder / "files").iterdir()) == []


@pytest.mark.parametrize("size", [1025, 200_000])
def test_a_file_that_is_too_large_is_refused_and_nothing_is_kept(
    folder: Path, make_door: OpenDoor, size: int
) -> None:
    client = client_of(make_door(batching(folder, file_bytes=1024)))
    send(client, b"x" * 1024)
    with pytest.raises(openai.APIStatusError) as error:
        send(client, b"x" * size)
    assert error.value.status_code == 413
    assert len(list((folder / "files").iterdir())) == 1
    assert list((folder / "incoming").iterdir()) == []


def test_a_tenant_cannot_fill_the_disk(folder: Path, make_door: OpenDoor) -> None:
    client = client_of(make_door(batching(folder, tenant_bytes=3 * 4096)))
    ids = [send(client) for _ in range(3)]
    with pytest.raises(openai.BadRequestError, match="limit is 12288"):
        send(client)
    assert len(list((folder / "files").iterdir())) == 3
    client.files.delete(ids[0])
    send(client)


def test_forms_that_are_not_as_they_should_be_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=("in.jsonl", b"{}"), purpose="fine-tune")
    with pytest.raises(openai.BadRequestError, match="empty"):
        send(client, b"")
    with pytest.raises(openai.BadRequestError, match="expires_after"):
        client.files.create(
            file=("in.jsonl", b"{}"),
            purpose="batch",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
    with pytest.raises(openai.BadRequestError, match="limit"):
        client.files.list(limit=0)


def test_a_client_that_leaves_leaves_nothing_behind(door: Door, folder: Path) -> None:
    head = (
        "POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n"
        "content-type: multipart/form-data; boundary=b\r\n\r\n"
        '--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\nhalf'
    )
    with socket.create_connection((door.host, door.port)) as connection:
        connection.sendall(head.encode())
        door.wait_for(lambda: list((folder / "incoming").iterdir()) != [])
    door.wait_for(lambda: list((folder / "incoming").iterdir()) == [])


def test_foreign_web_pages_cannot_send_files(folder: Path, make_door: OpenDoor) -> None:
    origins = ("https://app.example.com",)
    config = GatewayConfig(port=0, cors_origins=origins)
    client = client_of(make_door(batching(folder, config)))

    def send_from(origin: str) -> None:
        headers = {"origin": origin}
        client.files.create(file=("f", b"{}"), purpose="batch", extra_headers=headers)

    with pytest.raises(openai.PermissionDeniedError):
        send_from("https://elsewhere.example.com")
    send_from(origins[0])


def test_a_tenant_sees_its_own_files_only(
    folder: Path, tmp_path: Path, make_door: OpenDoor
) -> None:
    keyring = Keyring(tmp_path)
    door = make_door(batching(folder, keyring.gateway()))
    own, other = client_of(door, keyring.infer), client_of(door, keyring.add("team-c"))
    file_id = send(own)
    assert list(other.files.list()) == []
    for attempt in (other.files.retrieve, other.files.content, other.files.delete):
        with pytest.raises(openai.NotFoundError):
            attempt(file_id)
    with pytest.raises(openai.NotFoundError):
        other.batches.create(
            input_file_id=file_id, endpoint="/v1/completions", completion_window="24h"
        )
    with pytest.raises(openai.BadRequestError, match="after"):
        other.files.list(after=file_id)
    assert [file.id for file in own.files.list()] == [file_id]


def test_without_a_folder_the_routes_say_what_is_missing(make_door: OpenDoor) -> None:
    reply = get(make_door(), "/v1/files")
    assert reply.status == 400
    assert "gateway.batches.folder" in reply.json["error"]["message"]

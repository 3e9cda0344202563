"""A pull through the hub's own client library, from a hub on this machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import errors as hub_errors

from steelyard.checkpoints import ModelStore, PullProgress, open_checkpoint, verify_checkpoint
from steelyard.checkpoints._hub_source import fetch_from_hub
from steelyard.checkpoints.catalog import HubModel
from steelyard.checkpoints.progress import report_nothing
from steelyard.contract.errors import CheckpointError
from tests.checkpoints.builders import write_gguf, write_hf_directory
from tests.checkpoints.fake_hub import COMMIT, fake_hub, publish
from tests.checkpoints.faulty_server import FaultyServer

REPOSITORY = "tiny-org/tiny-model"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = write_hf_directory(tmp_path_factory.mktemp("hub") / "m", shards=2)
    (directory / "chat_template.jinja").write_text("hello")
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def hub(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with fake_hub(REPOSITORY, files) as server:
        yield server


def _pull(tmp_path: Path, hub: FaultyServer, name: str = REPOSITORY) -> Path:
    return ModelStore(tmp_path, hub_endpoint=hub.url).pull(name)


def test_a_sharded_model_is_fetched_whole_and_opens_under_its_name(
    tmp_path: Path, hub: FaultyServer, files: dict[str, bytes]
) -> None:
    path = _pull(tmp_path, hub)
    checkpoint = open_checkpoint(path)
    assert checkpoint.name == REPOSITORY
    assert len(checkpoint.files) == 2
    assert checkpoint.chat_template == "hello"
    for name, body in files.items():
        assert (path / name).read_bytes() == body
    assert not (path / ".cache").exists()


def test_the_store_remembers_where_a_model_came_from(tmp_path: Path, hub: FaultyServer) -> None:
    path = _pull(tmp_path, hub)
    store = ModelStore(tmp_path, hub_endpoint="http://127.0.0.1:9")
    (stored,) = store.list()
    assert (stored.name, stored.path) == (REPOSITORY, path)
    assert COMMIT in stored.source
    assert store.resolve(REPOSITORY) == path
    assert store.pull(REPOSITORY) == path


def test_pickles_python_and_subfolders_are_never_fetched(
    tmp_path: Path, hub: FaultyServer, files: dict[str, bytes]
) -> None:
    unwanted = {
        "pytorch_model.bin": b"pickle",
        "modeling_evil.py": b"import os",
        "original/consolidated.safetensors": b"x",
        "README.md": b"hi",
        "../escape.json": b"{}",
        ".hidden.json": b"{}",
    }
    publish(hub, REPOSITORY, files | unwanted)
    path = _pull(tmp_path, hub)
    found = {str(entry.relative_to(path)) for entry in path.rglob("*") if entry.is_file()}
    assert found == set(files) | {"steelyard-model.json"}
    assert not any(name in path for path, _ in hub.requests for name in unwanted)


def test_an_interrupted_pull_goes_on_where_it_stopped(tmp_path: Path, hub: FaultyServer) -> None:
    class Interrupted(Exception):
        """What Ctrl-C does, at a moment of our choice."""

    def interrupt(progress: PullProgress) -> None:
        if progress.step == "verifying" and progress.file.startswith("model-00001"):
            raise Interrupted

    store = ModelStore(tmp_path, hub_endpoint=hub.url)
    with pytest.raises(Interrupted):
        store.pull(REPOSITORY, interrupt)
    assert store.list() == []
    hub.requests.clear()
    store.pull(REPOSITORY)
    fetched = [path for path, _ in hub.requests if "resolve" in path]
    assert not any("model-00001" in path for path in fetched)
    assert any("model-00002" in path for path in fetched)


def test_a_file_whose_bytes_were_changed_on_the_way_is_deleted_and_named(
    tmp_path: Path, hub: FaultyServer, files: dict[str, bytes]
) -> None:
    name = "model-00001-of-00002.safetensors"
    path = f"/{REPOSITORY}/resolve/{COMMIT}/{name}"
    hub.files[path] = hub.files[path][:-1] + b"\x7f"
    with pytest.raises(CheckpointError, match="SHA-256") as caught:
        _pull(tmp_path, hub)
    assert name in str(caught.value.param)
    publish(hub, REPOSITORY, files)
    assert open_checkpoint(_pull(tmp_path, hub)).name == REPOSITORY


def test_a_bit_that_flips_later_is_found_by_verifying(tmp_path: Path, hub: FaultyServer) -> None:
    path = _pull(tmp_path, hub)
    assert len(verify_checkpoint(open_checkpoint(path))) == 2
    weights = path / "model-00002-of-00002.safetensors"
    body = bytearray(weights.read_bytes())
    body[-1] ^= 1
    weights.write_bytes(body)
    with pytest.raises(CheckpointError, match="SHA-256") as caught:
        verify_checkpoint(open_checkpoint(path))
    assert caught.value.param == str(weights)


def test_a_repository_with_one_gguf_file_gives_that(tmp_path: Path, hub: FaultyServer) -> None:
    body = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    publish(hub, REPOSITORY, {"tiny.gguf": body, "config.json": b"{}"})
    path = _pull(tmp_path / "cache", hub)
    assert path.name == "tiny.gguf"
    assert open_checkpoint(path).name == REPOSITORY


def test_of_several_gguf_files_one_must_be_named(tmp_path: Path, hub: FaultyServer) -> None:
    body = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    publish(hub, REPOSITORY, {"a-q4.gguf": body, "b-q8.gguf": body})
    with pytest.raises(CheckpointError, match="several") as caught:
        _pull(tmp_path / "cache", hub)
    assert f"{REPOSITORY}:a-q4.gguf" in caught.value.fix
    path = _pull(tmp_path / "cache", hub, f"{REPOSITORY}:b-q8.gguf")
    assert path.name == "b-q8.gguf"
    with pytest.raises(CheckpointError, match=r"no c\.gguf"):
        _pull(tmp_path / "cache", hub, f"{REPOSITORY}:c.gguf")


def test_a_repository_of_pickles_is_refused(tmp_path: Path, hub: FaultyServer) -> None:
    hub.files.clear()
    publish(hub, REPOSITORY, {"pytorch_model.bin": b"pickle", "config.json": b"{}"})
    with pytest.raises(CheckpointError, match="no weights") as caught:
        _pull(tmp_path, hub)
    assert "safetensors" in caught.value.fix


def test_an_index_that_names_files_elsewhere_is_refused(
    tmp_path: Path, hub: FaultyServer, files: dict[str, bytes]
) -> None:
    evil = json.dumps({"weight_map": {"a": "../../evil.safetensors"}}).encode()
    publish(hub, REPOSITORY, files | {"model.safetensors.index.json": evil})
    with pytest.raises(CheckpointError, match="evil"):
        _pull(tmp_path, hub)


def test_a_model_that_does_not_exist_is_reported(tmp_path: Path, hub: FaultyServer) -> None:
    with pytest.raises(CheckpointError) as caught:
        _pull(tmp_path, hub, "tiny-org/missing")
    assert caught.value.param == "tiny-org/missing"
    assert caught.value.fix


def test_an_unreachable_hub_is_reported_with_a_way_out(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, hub_endpoint="http://127.0.0.1:9")
    with pytest.raises(CheckpointError, match="cannot be fetched") as caught:
        store.pull(REPOSITORY)
    assert "smollm2-135m" in caught.value.fix


class _Response:
    """What the library's errors want to know of an answer."""

    headers: dict[str, str] = {}  # noqa: RUF012
    request = None
    status_code = 403


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (hub_errors.GatedRepoError("x", response=_Response()), "gated"),
        (hub_errors.RepositoryNotFoundError("x", response=_Response()), "no such model"),
        (hub_errors.RevisionNotFoundError("x", response=_Response()), "not on the hub"),
        (hub_errors.RemoteEntryNotFoundError("x", response=_Response()), "not on the hub"),
        (hub_errors.OfflineModeIsEnabled("offline"), "offline"),
        (hub_errors.HfHubHTTPError("502 Bad Gateway", response=_Response()), "502"),
        (hub_errors.LocalEntryNotFoundError("gone"), "gone"),
        (hub_errors.HFValidationError("bad name"), "bad name"),
        (ConnectionResetError(104, "reset"), "reset"),
        (TimeoutError("slow"), "slow"),
        (RuntimeError("client closed"), "client closed"),
    ],
)
def test_every_error_of_the_library_becomes_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", fail)
    with pytest.raises(CheckpointError, match=words) as caught:
        fetch_from_hub(HubModel(REPOSITORY), tmp_path, report_nothing)
    assert caught.value.param == REPOSITORY

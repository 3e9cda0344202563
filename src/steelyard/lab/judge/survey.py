"""Asks a server process of this machine what no HTTP answer says: flags, weights, threads, driver.

Reads what the system tells about the process; starts nothing. Values of options that may hold a
secret are left out. What cannot be read is missing from the answer.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from steelyard.lab.machine import find_server_pid

__all__ = ["flags_of", "survey_server", "weights_digest"]

_SECRET = re.compile(r"(?i)key|token$|secret|password|auth")
_ADDRESS = re.compile(r"--?(?:host|port|listen|bind)")
_WEIGHTS = (".gguf", ".safetensors")
_WHOLE_BYTES = 4 * 2**30
"""Weights up to so much are read completely; of more, the first MiB of every 64."""
_STRIDE_BYTES = 64 * 2**20
_BLOCK_BYTES = 2**20
_DRIVER = Path("/proc/driver/nvidia/version")


def survey_server(url: str, *, since_unix_s: float) -> dict[str, str]:
    """Facts for `fingerprint_of` about the process that listens there.

    Empty when it is elsewhere, belongs to somebody else, or has begun after `since_unix_s`: then it
    is not the one that was measured.
    """
    parts = urlsplit(url)
    pid = find_server_pid(parts.hostname or "", parts.port or 80)
    if pid is None:
        return {}
    facts: dict[str, str] = {}
    try:
        server = psutil.Process(pid)
        if server.create_time() > since_unix_s:
            return {}
        family = [server, *server.children(recursive=True)]
        facts["flags"] = flags_of(server.cmdline())
        facts["threads"] = str(len(server.cpu_affinity()))
        weights = sorted({path for process in family for path in _mapped_weights(process)})
    except (psutil.Error, OSError):
        return facts
    if weights:
        facts["weights"] = weights_digest(weights)
    if _DRIVER.is_file():
        facts["driver"] = _DRIVER.read_text(encoding="utf-8").splitlines()[0]
    return facts


def weights_digest(paths: Iterable[Path]) -> str:
    """Of the files' contents. Of very large ones a sample, and the digest says so."""
    paths = list(paths)
    sizes = [path.stat().st_size for path in paths]
    is_sampled = sum(sizes) > _WHOLE_BYTES
    hashed = hashlib.sha256()
    for path, size in zip(paths, sizes, strict=True):
        hashed.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            step = _STRIDE_BYTES if is_sampled else _BLOCK_BYTES
            for offset in range(0, size, step):
                file.seek(offset)
                hashed.update(file.read(_BLOCK_BYTES))
    return ("sampled:" if is_sampled else "sha256:") + hashed.hexdigest()[:16]


def flags_of(command: Sequence[str]) -> str:
    """A command line without what differs between equal servers (where the program lies, where it
    listens) and without what may be a secret."""
    words = list(command)
    if words and Path(words[0]).name.startswith("python"):
        del words[0]
    shown = [Path(words[0]).name] if words else []
    is_value_of: re.Pattern[str] | None = None
    for word in words[1:]:
        name, equals, _ = word.partition("=")
        if is_value_of is not None and not word.startswith("-"):
            if is_value_of is _SECRET:
                shown.append("…")
            is_value_of = None
            continue
        is_value_of = None
        if not word.startswith("-"):
            shown.append(word)
        elif _ADDRESS.fullmatch(name):
            is_value_of = None if equals else _ADDRESS
        elif _SECRET.search(name):
            shown.append(f"{name}=…" if equals else name)
            is_value_of = None if equals else _SECRET
        else:
            shown.append(word)
    return " ".join(shown)


def _mapped_weights(process: psutil.Process) -> list[Path]:
    """Files of weights that the process has mapped or open."""
    try:
        named = [region.path for region in process.memory_maps()]
        named += [file.path for file in process.open_files()]
    except (psutil.Error, OSError):
        return []
    return [Path(name) for name in named if name.endswith(_WEIGHTS) and Path(name).is_file()]

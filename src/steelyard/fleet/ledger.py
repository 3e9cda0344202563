"""What the fleet must know after its supervisor has died: one small file, replaced whole.

Who runs, by process and start time, so that a number the system has given away again is not taken
for an engine; and what operators have changed since the deployment file was read. Holds no
secrets.
"""

from pathlib import Path

import msgspec
import psutil

from steelyard.contract.errors import SettingsError

__all__ = ["Ledger", "ProcessRecord"]

_VERSION = 1
_START_TOLERANCE_S = 0.5


class ProcessRecord(msgspec.Struct, frozen=True):
    """A process that was started for a replica."""

    pid: int
    started_s: float
    """As the system tells it; with `pid` it names one process for good."""
    digest: str
    """Of its configuration: one that was started with another must not be taken over."""

    def is_alive(self) -> bool:
        """Whether that very process is still there."""
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started_s) < _START_TOLERANCE_S
            return is_same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


class _Content(msgspec.Struct):
    version: int = _VERSION
    processes: dict[str, ProcessRecord] = {}
    """By replica."""
    counts: dict[str, int] = {}
    """Replicas of a group, where `scale` has changed them."""
    serving: dict[str, bool] = {}
    """Replicas that were promoted, or put back, by name."""


class Ledger:
    """The file, and its content. One supervisor at a time owns it."""

    def __init__(self, path: Path) -> None:
        """Read what is there. Raises `SettingsError` when it cannot be used."""
        self._path = path
        self._content = _read(path)

    def process(self, replica: str) -> ProcessRecord | None:
        """The newest process of a replica, alive or not."""
        return self._content.processes.get(replica)

    @property
    def processes(self) -> dict[str, ProcessRecord]:
        return dict(self._content.processes)

    def count(self, group: str, default: int) -> int:
        """How many replicas a group has."""
        return self._content.counts.get(group, default)

    def is_serving(self, replica: str, *, default: bool) -> bool:
        """Whether a replica takes requests, standbys by default not."""
        return self._content.serving.get(replica, default)

    def note_process(self, replica: str, record: ProcessRecord | None) -> None:
        """A process was started for a replica; None: there is none any more."""
        if record is None:
            self._content.processes.pop(replica, None)
        else:
            self._content.processes[replica] = record
        self._write()

    def note_count(self, group: str, count: int) -> None:
        """A group was scaled."""
        self._content.counts[group] = count
        self._write()

    def note_serving(self, replica: str, is_serving: bool) -> None:
        """A replica was promoted or put back."""
        self._content.serving[replica] = is_serving
        self._write()

    def clear(self) -> None:
        """Nobody is left, so the deployment file alone says how to begin again."""
        self._content = _Content()
        self._write()

    def _write(self) -> None:
        text = msgspec.json.format(msgspec.json.encode(self._content))
        draft = self._path.with_suffix(".new")
        draft.write_bytes(text + b"\n")
        draft.replace(self._path)


def _read(path: Path) -> _Content:
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_Content)
    except FileNotFoundError:
        return _Content()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(
            f"{path} cannot be read: {error}", fix="stop the replicas it names and remove it"
        ) from error
    if content.version != _VERSION:
        raise SettingsError(f"{path} is of another version", fix="run `steelyard down` first")
    return content

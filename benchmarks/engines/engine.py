"""What is compared: a program that serves, how it is started, and what its steps read.

Data only. `engines` has the list, `server` starts and stops one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Dot", "Engine", "Family", "WeightBits"]

Family = Literal["steelyard", "vllm", "llama.cpp"]
Dot = Literal["fp32", "bf16", "int8"]
"""Kind of dot product, which has a peak rate of its own."""


@dataclass(frozen=True, slots=True)
class WeightBits:
    """Bits per weight as stored in memory, scales included."""

    layers: float
    head: float
    dot: Dot
    kv_bytes: int = 2
    """Of a key's or value's element."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine at one precision."""

    key: str
    """Names it in results, such as `llama-q8_0`."""
    family: Family
    precision: str
    """In the engine's own word."""
    argv: Sequence[str]
    """`{port}` stands for the port."""
    shown: str
    """The options for people: what is not default, without paths."""
    bits: WeightBits
    ready_path: str
    model: str = "smollm2-135m"
    environment: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, bool | int | float | str | list[str]] = field(default_factory=dict)
    """Further members of every request's body."""

    @property
    def is_ours(self) -> bool:
        return self.family == "steelyard"

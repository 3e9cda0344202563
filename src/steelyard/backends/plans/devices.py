"""Devices that models are planned for: their memory, and how the driver's name is read.

Only what plans are refused by; speeds are not here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["DEVICES", "Device", "Hardware", "find_hardware"]

Hardware = Literal[
    "cpu",
    "a100",
    "h100",
    "h200",
    "b200",
    "b300",
    "gb200",
    "gb300",
    "mi325x",
    "rtx_pro_6000",
    "other",
]
"""`other`: a device without facts here; nothing is refused for its sake."""


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of accelerator."""

    memory_gb: int
    """In units of 10⁹ bytes, as vendors count."""
    generation: Literal["ampere", "hopper", "blackwell", "cdna3"]


DEVICES: dict[str, Device] = {
    "a100": Device(80, "ampere"),
    "h100": Device(80, "hopper"),
    "h200": Device(141, "hopper"),
    "b200": Device(180, "blackwell"),
    "b300": Device(288, "blackwell"),
    "gb200": Device(186, "blackwell"),
    "gb300": Device(288, "blackwell"),
    "mi325x": Device(256, "cdna3"),
    "rtx_pro_6000": Device(96, "blackwell"),
}

_NAMES: tuple[Hardware, ...] = (
    "gb300",
    "gb200",
    "b300",
    "b200",
    "h200",
    "h100",
    "a100",
    "mi325x",
)
"""Longer ones first: `NVIDIA GB200` holds `B200`."""


def find_hardware(device_names: Sequence[str]) -> Hardware:
    """From the names that drivers give; no device at all is a CPU."""
    if not device_names:
        return "cpu"
    name = device_names[0].lower()
    if "rtx pro 6000" in name:
        return "rtx_pro_6000"
    return next((kind for kind in _NAMES if kind in name), "other")

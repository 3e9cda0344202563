"""Fixtures of the door's tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from steelyard.gateway.config import GatewayConfig

from .doors import Door, engine_config, open_door

OpenDoor = Callable[..., Door]


@pytest.fixture
def door() -> Iterator[Door]:
    """A door with default settings before an engine that answers at once."""
    with open_door() as opened:
        yield opened


@pytest.fixture
def make_door() -> Iterator[OpenDoor]:
    """Opens doors with other settings: `make_door(GatewayConfig(...), itl_s=0.01)`."""
    with ExitStack() as stack:

        def make(
            config: GatewayConfig | None = None, names: tuple[str, ...] = ("fake",), **engine: Any
        ) -> Door:
            return stack.enter_context(open_door(config, engine_config(**engine), names=names))

        yield make

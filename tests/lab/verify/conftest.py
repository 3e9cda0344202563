"""Servers to verify: the project's own door before its fake engine, alone or behind a proxy."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from steelyard.lab.mock.proxy import FaultProxy
from steelyard.lab.mock.proxy.faults import Fault
from steelyard.lab.verify import Finding, VerifyConfig, read_target, verify
from tests.gateway.doors import Door, engine_config, open_door

__all__ = ["behind", "findings", "quick_config"]


@pytest.fixture(scope="package")
def door() -> Iterator[Door]:
    """Answers at once, in small letters; nothing in it is changed by being asked."""
    with open_door(engine=engine_config()) as opened:
        yield opened


@contextlib.asynccontextmanager
async def behind(url: str, *faults: Fault) -> AsyncIterator[str]:
    """The server at `url` with faults planted into its answers; gives the proxy's URL."""
    proxy = FaultProxy(url, faults)
    await proxy.startup()
    try:
        yield proxy.url
    finally:
        await proxy.shutdown()


def quick_config(*only: str, skip: Sequence[str] = ()) -> VerifyConfig:
    """Everything, or what `only` names, with a short patience."""
    return VerifyConfig(only=only, skip=tuple(skip), check_timeout_s=20.0, concurrency=4)


async def findings(url: str, *only: str, skip: Sequence[str] = ()) -> dict[str, Finding]:
    """What is found at `url`, by check."""
    report = await verify([read_target(url)], quick_config(*only, skip=skip))
    return {finding.check: finding for finding in report.findings}

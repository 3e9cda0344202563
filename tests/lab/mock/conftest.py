"""Running mocks and proxies."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from steelyard.lab.mock import MockServer, RequestTruth, RunTruth, make_config, read_truth
from steelyard.lab.mock.proxy import FaultProxy, make_faults

StartMock = Callable[..., Awaitable[MockServer]]
StartProxy = Callable[[str, Sequence[str]], Awaitable[str]]
ReadTruth = Callable[[MockServer], tuple[RunTruth, list[RequestTruth]]]


@pytest.fixture
async def start_mock(tmp_path: Path) -> AsyncIterator[StartMock]:
    """Starts mocks that answer within milliseconds and write a truth file."""
    servers: list[MockServer] = []

    async def start(**keys: object) -> MockServer:
        usual: dict[str, object] = {"port": 0, "ttft_ms": 5, "itl_ms": 1, "output_tokens": 6}
        truth = str(tmp_path / f"truth-{len(servers)}.jsonl")
        server = MockServer(make_config({**usual, "truth": truth, **keys}))
        await server.startup()
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.shutdown()


@pytest.fixture
def truth_of() -> ReadTruth:
    """Reads what a mock has written so far."""

    def read(server: MockServer) -> tuple[RunTruth, list[RequestTruth]]:
        server.flush_truth()
        assert server.config.truth is not None
        return read_truth(Path(server.config.truth))

    return read


@pytest.fixture
async def start_proxy() -> AsyncIterator[StartProxy]:
    """Starts proxies; gives their URL."""
    proxies: list[FaultProxy] = []

    async def start(upstream: str, faults: Sequence[str]) -> str:
        proxy = FaultProxy(upstream, make_faults(faults))
        await proxy.startup()
        proxies.append(proxy)
        return proxy.url

    yield start
    for proxy in proxies:
        await proxy.shutdown()

"""A mock in the test's own event loop, and observations of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from steelyard.lab.mock import MockConfig, MockServer, RequestTruth, read_truth

Start = Callable[..., Awaitable["Mock"]]


class Mock:
    """A running mock and what it knows."""

    def __init__(self, server: MockServer, truth: Path) -> None:
        self.server = server
        self.url = server.url
        self._truth = truth

    def truth(self) -> dict[str, RequestTruth]:
        """Every request that has ended, by its id."""
        self.server.flush_truth()
        return {request.request_id: request for request in read_truth(self._truth)[1]}


@pytest.fixture
async def start_mock(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts mocks; keywords are those of `MockConfig`."""
    started: list[MockServer] = []

    async def start(**config: object) -> Mock:
        truth = tmp_path / f"truth-{len(started)}.jsonl"
        server = MockServer(MockConfig(port=0, truth=str(truth), realtime=False, **config))
        await server.startup()
        started.append(server)
        return Mock(server, truth)

    yield start
    for server in started:
        await server.shutdown()

"""The mock's engine under virtual time, and a reference for its queue."""

import heapq
from dataclasses import dataclass, field
from typing import Any

from steelyard.lab.mock.config_file import make_config
from steelyard.lab.mock.gateway_stage import GatewayStage
from steelyard.lab.mock.plans import Planner
from steelyard.lab.mock.requests import MockRequest
from steelyard.lab.mock.serving import Batch, Job, Serving
from steelyard.lab.mock.text import MockText
from steelyard.lab.mock.timers import NS_PER_MS, VirtualTimers

__all__ = ["Heard", "VirtualMock", "md_c_starts_ms"]


@dataclass
class Heard:
    """A sink that remembers."""

    batches: list[Batch] = field(default_factory=list)

    def take(self, batch: Batch) -> None:
        self.batches.append(batch)

    @property
    def token_times_ms(self) -> list[float]:
        return [b.due_ns / NS_PER_MS for b in self.batches for _ in range(b.count)]


class VirtualMock:
    """Requests in, times of tokens out; nothing waits."""

    def __init__(self, **keys: object) -> None:
        self.config = make_config(keys)
        self.timers = VirtualTimers()
        self.serving = Serving(self.config, self.timers)
        self.gateway = GatewayStage(self.timers, self.config.gateway_us_per_event)
        self._planner = Planner(self.config, MockText(self.config.client_tokens_per_token))

    def arrive(self, at_ms: float, **asked: Any) -> tuple[Job, Heard]:
        """A request arrives; everything due before has happened."""
        self.run_until(at_ms)
        heard = Heard()
        plan = self._planner.plan(request(**asked))
        job = Job(plan, self.gateway.in_front_of(heard), self.timers.now_ns())
        self.serving.submit(job)
        return job, heard

    def run_until(self, at_ms: float) -> None:
        self.timers.run_until(round(at_ms * NS_PER_MS))


def request(**asked: Any) -> MockRequest:
    """A streamed completion for three prompt tokens, unless said otherwise."""
    usual: dict[str, Any] = {
        "endpoint": "completion",
        "prompt": b"prompt",
        "prompt_tokens": 3,
        "seed": 0,
        "max_tokens": None,
        "is_stream": True,
        "wants_usage": False,
        "wants_running_usage": False,
        "wants_token_ids": False,
        "ignore_eos": False,
        "stop": (),
    }
    return MockRequest(**{**usual, **asked})


def md_c_starts_ms(arrivals_ms: list[float], service_ms: float, servers: int) -> list[float]:
    """When service begins, by the textbook: c servers, constant service time, one line.

    Each customer takes the server that becomes free first (Kiefer and Wolfowitz's recursion).
    """
    free = [0.0] * servers
    starts = []
    for arrival in arrivals_ms:
        start = max(arrival, heapq.heappop(free))
        starts.append(start)
        heapq.heappush(free, start + service_ms)
    return starts

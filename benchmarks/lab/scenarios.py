"""What the load generators are asked to measure: a mock with known truth, and a load."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["SCENARIOS", "Scenario"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row group of the table. Everything that a tool's command line needs."""

    name: str
    mock: dict[str, object]
    """Keys of the mock's configuration."""
    rate: float
    """Requests per second, asked for."""
    arrivals: Literal["poisson", "constant"]
    requests: int
    output_tokens: int
    concurrency: int | None = None
    """Cap asked of the client; None asks for none."""

    def scaled(self, share: float) -> "Scenario":
        """The same with a share of the requests, at least 40."""
        requests = max(round(self.requests * share), 40)
        return Scenario(
            self.name,
            self.mock,
            self.rate,
            self.arrivals,
            requests,
            self.output_tokens,
            self.concurrency,
        )


_JITTERED: dict[str, object] = {
    "ttft_ms": "gamma:200,0.1",
    "itl_ms": "gamma:20,0.2",
    "role_chunk_ms": 50,
    "client_tokens_per_token": 2,
}
"""The role alone comes early and is no token; a client's tokenizer counts twice what ours does."""

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "10/s",
        _JITTERED,
        rate=10,
        arrivals="poisson",
        requests=600,
        output_tokens=50,
    ),
    Scenario(
        "200/s",
        _JITTERED,
        rate=200,
        arrivals="poisson",
        requests=4000,
        output_tokens=20,
    ),
    # Four slots of 0.2 + 49 * 0.02 = 1.18 s serve 3.39 requests per second of the 10 offered.
    Scenario(
        "omission",
        {"ttft_ms": 200, "itl_ms": 20, "slots": 4},
        rate=10,
        arrivals="constant",
        requests=80,
        output_tokens=50,
        concurrency=8,
    ),
)

"""Presets that make one resource of the mock the limit, so that a tool can be tested for naming it.

    queue      four slots: requests wait although tokens come quickly once they are served
    prefill    prompts are computed one after the other: the first token waits, later ones do not
    decode     every running request slows all others: gaps grow with the number of streams
    kv         memory for 4,096 tokens: requests wait and are preempted, its use stays near 1
    client     tokens come faster than most clients read them: the server's own times stay short
    gateway    events queue in front of the engine's clients: the engine's times stay short

A preset is values of `MockConfig` and nothing else; keys that are given win over it.
"""

from steelyard.lab.mock.config import BottleneckName

__all__ = ["BOTTLENECKS"]

BOTTLENECKS: dict[BottleneckName, dict[str, object]] = {
    "queue": {"slots": 4, "ttft_ms": 50},
    "prefill": {"prefill_tokens_per_s": 2000.0, "ttft_ms": 10},
    "decode": {"itl_us_per_running": 2000.0, "ttft_ms": 50, "itl_ms": 5},
    "kv": {"kv_tokens": 4096, "ttft_ms": 50},
    "client": {"ttft_ms": 1, "itl_ms": 0.2, "output_tokens": 512},
    "gateway": {"gateway_us_per_event": 1000.0, "ttft_ms": 20, "itl_ms": 5},
}
"""By name; `docs/mock.md` tells at which load each becomes visible."""

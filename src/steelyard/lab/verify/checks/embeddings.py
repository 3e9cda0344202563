"""Checks of embeddings, for servers that offer them."""

import math

from steelyard.lab.verify.check import check
from steelyard.lab.verify.offer import post
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]


@check(
    "embeddings.vectors",
    "Each input gets its own vector of finite numbers, the same alone and with others.",
    "data[i] belongs to input i; pooling must not see its neighbours.",
)
async def _vectors(probe: Probe) -> None:
    if "/v1/embeddings" not in probe.offer.paths:
        probe.skip("there is no /v1/embeddings")
    both = await _embed(probe, ["A small red house.", "Quarterly interest rates."])
    alone = await _embed(probe, ["A small red house."])
    if not probe.claim(len(both) == 2 and len(alone) == 1, "vectors are missing"):
        return
    lengths = {len(vector) for vector in (*both, *alone)}
    probe.claim(len(lengths) == 1 and 0 not in lengths, f"lengths are {sorted(lengths)}")
    is_finite = all(math.isfinite(value) for vector in both for value in vector)
    probe.claim(is_finite, "a value is not finite")
    probe.claim(_cosine(both[0], alone[0]) > 0.999, "alone and with others, vectors differ")
    probe.claim(_cosine(both[0], both[1]) < 0.9999, "different inputs have the same vector")


async def _embed(probe: Probe, inputs: list[str]) -> list[list[float]]:
    body = {"model": probe.offer.model, "input": inputs}
    exchange = probe.last = await post(probe.target, "/v1/embeddings", body)
    if not exchange.is_ok:
        probe.skip(f"/v1/embeddings got status {exchange.status}")
    data = sorted(exchange.json()["data"], key=lambda item: item["index"])
    return [item["embedding"] for item in data]


def _cosine(left: list[float], right: list[float]) -> float:
    dot = sum(a * b for a, b in zip(left, right, strict=True))
    norms = math.hypot(*left) * math.hypot(*right)
    return dot / norms if norms else 0.0


CHECKS = (_vectors,)

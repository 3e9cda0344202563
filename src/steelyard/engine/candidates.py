"""Which tokens may be drawn: top-k, top-p and min-p over one row of logits.

Sorting a whole vocabulary costs milliseconds, and the mass sits in few tokens. So the most likely
ones are taken out by partial selection, in growing numbers, until they are sure to hold all that
may be kept.
"""

import math

import torch
from torch import Tensor

from steelyard.contract import SamplingParams

__all__ = ["keep_candidates"]

_FIRST_SELECTION = 256
_GROWTH = 8


def keep_candidates(logits: Tensor, sampling: SamplingParams) -> tuple[Tensor | None, Tensor]:
    """Token ids, most likely first (None: the whole vocabulary, by id), and their weights.

    logits: float32 [vocabulary], already divided by the temperature. Weights need not sum to 1.
    min_p is applied first, then top_k, then top_p over what is left, as in vLLM.
    """
    weights = (logits - logits.max()).exp()
    if sampling.top_k == 0 and sampling.top_p >= 1.0 and sampling.min_p == 0.0:
        return None, weights
    vocabulary = len(weights)
    floor = sampling.min_p  # the largest weight is 1
    if floor > 0.0:
        weights = torch.where(weights >= floor, weights, 0.0)
    limit = sampling.top_k if 0 < sampling.top_k < vocabulary else vocabulary
    count = min(limit, _FIRST_SELECTION)
    while True:
        values, ids = weights.topk(count)
        kept = _nucleus(values, _mass(weights, values, limit), sampling.top_p)
        if kept < count or count == limit or values[-1] == 0.0:
            return ids[:kept], values[:kept]
        count = min(limit, count * _GROWTH)


def _mass(weights: Tensor, selected: Tensor, limit: int) -> float:
    """Total weight that top_p refers to: of the top_k tokens, or of all."""
    return float(selected.sum() if len(selected) == limit else weights.sum())


def _nucleus(values: Tensor, mass: float, top_p: float) -> int:
    """How many of the sorted `values` are needed to reach top_p of `mass`; at least one."""
    positive = int((values > 0).sum())
    if top_p >= 1.0:
        return max(positive, 1)
    before = values.double().cumsum(0) - values
    needed = int((before < top_p * mass).sum()) if math.isfinite(mass) else 1
    return max(min(needed, positive), 1)

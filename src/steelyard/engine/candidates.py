"""Which tokens may be drawn: top-k, top-p and min-p over one row of logits.

Sorting a whole vocabulary costs milliseconds, and the mass sits in few tokens. So the most likely
ones are taken out by partial selection, in growing numbers, until they are sure to hold all that
may be kept.
"""

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
    if sampling.min_p > 0.0:  # the largest weight is 1
        weights = torch.where(weights >= sampling.min_p, weights, 0.0)
    if 0 < sampling.top_k < len(weights):
        values, ids = weights.topk(sampling.top_k)
        kept = _nucleus(values, float(values.sum()), sampling.top_p)
        return ids[:kept], values[:kept]
    return _select(weights, sampling.top_p)


def _select(weights: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The nucleus of all weights, from selections that grow until they are larger than it."""
    mass = float(weights.sum())
    count = min(len(weights), _FIRST_SELECTION)
    while True:
        values, ids = weights.topk(count)
        kept = _nucleus(values, mass, top_p)
        if kept < count or count == len(weights):
            return ids[:kept], values[:kept]
        count = min(len(weights), count * _GROWTH)


def _nucleus(values: Tensor, mass: float, top_p: float) -> int:
    """How many of the sorted `values` are needed to reach top_p of `mass`; at least one."""
    kept = int((values > 0).sum())
    if top_p < 1.0:
        before = values.double().cumsum(0) - values
        kept = min(kept, int((before < top_p * mass).sum()))
    return max(kept, 1)

"""Draws the next tokens from logits.

Randomness is one uniform number per token, a hash of (seed, position): it depends neither on the
batch nor on the machine, so a stream continued elsewhere draws the tokens it would have drawn here.
The number is looked up in the cumulative distribution (inverse transform sampling).
"""

from collections.abc import Sequence as Many

import numpy as np
import torch
from torch import Tensor

from steelyard.contract import SamplingParams, TokenLogprobs
from steelyard.engine.candidates import keep_candidates
from steelyard.scheduling.sequence import Sequence

__all__ = ["draw_tokens", "uniform"]

_WORD = (1 << 64) - 1


def draw_tokens(
    logits: Tensor, sequences: Many[Sequence]
) -> tuple[list[int], list[TokenLogprobs | None]]:
    """The next token of each sequence, and its log-probabilities where asked for.

    logits: float32 [sequences, vocabulary]; may be overwritten. Greedy ties take the lowest id.
    """
    greedy = [i for i, seq in enumerate(sequences) if _is_plain_greedy(seq.sampling)]
    if len(greedy) == len(sequences):
        return _argmax(logits), [None] * len(sequences)
    token_ids = [0] * len(sequences)
    logprobs: list[TokenLogprobs | None] = [None] * len(sequences)
    if greedy:
        for i, token_id in zip(greedy, _argmax(logits[greedy]), strict=True):
            token_ids[i] = token_id
    for i in sorted(set(range(len(sequences))) - set(greedy)):
        token_ids[i], logprobs[i] = _draw_one(logits[i], sequences[i])
    return token_ids, logprobs


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from SplitMix64 (Steele, Lea, Flood 2014) over seed and position."""
    word = (seed + (position + 1) * 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return float((word ^ (word >> 31)) >> 11) * 2.0**-53


def _is_plain_greedy(sampling: SamplingParams) -> bool:
    """Nothing but the largest logit matters."""
    return (
        sampling.temperature == 0.0
        and sampling.logprobs is None
        and not sampling.logit_bias
        and sampling.min_tokens == 0
        and sampling.repetition_penalty == 1.0
        and sampling.presence_penalty == 0.0
        and sampling.frequency_penalty == 0.0
    )


def _argmax(logits: Tensor) -> list[int]:
    if logits.device.type == "cpu":
        # Promises the first of equals, which torch does not, and is faster.
        found: list[int] = logits.numpy().argmax(-1).tolist()
        return found
    best: list[int] = logits.argmax(-1).tolist()
    return best


def _draw_one(logits: Tensor, sequence: Sequence) -> tuple[int, TokenLogprobs | None]:
    sampling = sequence.sampling
    adjusted = _adjust(logits, sequence)
    if sampling.temperature == 0.0:
        token_id = _argmax(adjusted[None])[0]
    else:
        ids, weights = keep_candidates(adjusted / sampling.temperature, sampling)
        token_id = _pick(ids, weights, uniform(sampling.seed, len(sequence.token_ids)))
    if sampling.logprobs is None:
        return token_id, None
    return token_id, _describe(logits, token_id, sampling.logprobs)


def _adjust(logits: Tensor, sequence: Sequence) -> Tensor:
    """Penalties, biases and forbidden tokens; a copy unless there are none."""
    sampling = sequence.sampling
    changed = logits.clone()
    if sampling.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(set(sequence.token_ids)), device=logits.device)
        values = changed[seen]
        penalty = sampling.repetition_penalty
        changed[seen] = torch.where(values > 0, values / penalty, values * penalty)
    if sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0:
        ids, counts = np.unique(np.asarray(sequence.output_ids, dtype=np.int64), return_counts=True)
        amounts = sampling.presence_penalty + sampling.frequency_penalty * counts
        where = torch.from_numpy(ids).to(logits.device)
        changed[where] -= torch.from_numpy(amounts).to(logits.device, torch.float32)
    for token_id, bias in sampling.logit_bias.items():
        changed[token_id] += bias
    if len(sequence.token_ids) < sequence.stop_from and sequence.stop_ids:
        changed[list(sequence.stop_ids)] = float("-inf")
    return changed


def _pick(ids: Tensor | None, weights: Tensor, number: float) -> int:
    """The candidate in whose share of the total `number` falls. `ids` None: all, by index."""
    cumulative = weights.double().cumsum(0)
    target = cumulative[-1] * number
    index = int(torch.searchsorted(cumulative, target, right=True))
    index = min(index, len(weights) - 1)
    return index if ids is None else int(ids[index])


def _describe(logits: Tensor, token_id: int, count: int) -> TokenLogprobs:
    """Log-probabilities of the distribution before any adjustment."""
    logprobs = logits.log_softmax(-1)
    drawn = float(logprobs[token_id])
    if count == 0:
        return TokenLogprobs(drawn)
    values, ids = logprobs.topk(min(count, len(logprobs)))
    return TokenLogprobs(drawn, tuple(ids.tolist()), tuple(values.tolist()))

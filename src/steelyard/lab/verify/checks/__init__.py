"""All checks, area by area, in the order in which they run.

One module per area; each lists its checks in `CHECKS`. What a check is stands in `check`, what it
works with in `probe`.
"""

from steelyard.lab.verify.check import Check
from steelyard.lab.verify.checks import (
    cancellation,
    chat,
    completions,
    concurrency,
    context,
    determinism,
    embeddings,
    errors,
    http,
    lengths,
    logprobs,
    models,
    sampling,
    stops,
    streams,
    tokenize,
    unicode,
    usage,
)

__all__ = ["CHECKS"]

CHECKS: tuple[Check, ...] = (
    *models.CHECKS,
    *chat.CHECKS,
    *completions.CHECKS,
    *tokenize.CHECKS,
    *embeddings.CHECKS,
    *streams.CHECKS,
    *usage.CHECKS,
    *lengths.CHECKS,
    *stops.CHECKS,
    *sampling.CHECKS,
    *logprobs.CHECKS,
    *determinism.CHECKS,
    *concurrency.CHECKS,
    *unicode.CHECKS,
    *context.CHECKS,
    *cancellation.CHECKS,
    *http.CHECKS,
    *errors.CHECKS,
)

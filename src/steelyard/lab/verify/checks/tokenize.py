"""Checks of the tokenizer endpoints."""

from steelyard.lab.verify.check import check
from steelyard.lab.verify.material import COUNTING, SCRIPTS
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_TEXTS = (COUNTING, *SCRIPTS, "  two  blanks\tand\n\nlines ", "👩‍👩‍👧‍👦 e\u0301 \u200b ﷽")


@check(
    "tokenize.round-trip",
    "Text that is made into tokens and back is the same text.",
    "Look at byte fallback, normalisation, and cleaning of blanks.",
)
async def _round_trip(probe: Probe) -> None:
    for text in _TEXTS:
        ids = await probe.tokenizer.encode(text)
        back = await probe.tokenizer.decode(ids)
        # Special tokens may stand before the text.
        is_same = back == text or back.endswith(text)
        witness = [probe.tokenizer.last] if probe.tokenizer.last else []
        probe.claim(is_same, f"{text[:30]!r} came back as {back[:60]!r}", *witness)


CHECKS = (_round_trip,)

"""Where two greedy answers to one prompt part, and whether both ways were right there.

Floating-point sums depend on their order, and the order on what else is in the batch. Where the
two most likely tokens are nearly equal, either may win without anything being wrong: a tie. A
divergence anywhere else is one of the computation.
"""

from dataclasses import dataclass

from steelyard.lab.verify.answers import Choice, Token

__all__ = ["Divergence", "common_tokens", "divergence"]

_END = "(end)"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where two answers differ."""

    position: int
    """Index of the token; of the character when tokens are not known."""
    left: str
    right: str
    """What either side has there."""
    left_gap_nats: float | None
    """How much more likely the left side found its own token than the other's; None when it does
    not tell. A lower bound when the other's token is not among its most likely ones."""
    right_gap_nats: float | None
    is_tie: bool

    @property
    def shown(self) -> str:
        """A sentence for people."""
        gaps = [g for g in (self.left_gap_nats, self.right_gap_nats) if g is not None]
        known = f"gap {max(gaps):.3f} nats" if gaps else "gap unknown"
        return f"at {self.position}: {self.left!r} against {self.right!r}, {known}"


def divergence(left: Choice, right: Choice, tie_nats: float) -> Divergence | None:
    """The first difference; None when the answers are equal."""
    if left.tokens is None or right.tokens is None:
        return _text_divergence(left.text, right.text)
    at = common_tokens(left, right)
    if at == len(left.tokens) == len(right.tokens):
        return _text_divergence(left.text, right.text)
    left_token = left.tokens[at] if at < len(left.tokens) else None
    right_token = right.tokens[at] if at < len(right.tokens) else None
    left_gap, right_gap = _gap(left_token, right_token), _gap(right_token, left_token)
    gaps = [gap for gap in (left_gap, right_gap) if gap is not None]
    return Divergence(
        at,
        left_token.text if left_token else _END,
        right_token.text if right_token else _END,
        left_gap,
        right_gap,
        is_tie=bool(gaps) and max(gaps) <= tie_nats,
    )


def common_tokens(left: Choice, right: Choice) -> int:
    """How many tokens the answers begin with in common."""
    count = 0
    for mine, others in zip(left.tokens or (), right.tokens or (), strict=False):
        if not _same(mine, others):
            break
        count += 1
    return count


def _same(left: Token, right: Token) -> bool:
    if left.raw is not None and right.raw is not None:
        return left.raw == right.raw
    return left.text == right.text


def _gap(own: Token | None, other: Token | None) -> float | None:
    """How clearly `own` was preferred to `other`; None when it cannot be told."""
    if own is None or own.logprob is None or not own.top:
        return None
    values = dict(own.top)
    if other is None:
        # The other answer ended here. Its end token has no text to look for: any rival will do.
        rivals = [value for text, value in own.top if text != own.text]
        return own.logprob - max(rivals) if rivals else None
    if other.text in values:
        return abs(own.logprob - values[other.text])
    return abs(own.logprob - min(values.values()))


def _text_divergence(left: str, right: str) -> Divergence | None:
    if left == right:
        return None
    pairs = zip(left, right, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
    return Divergence(
        at, left[at : at + 12] or _END, right[at : at + 12] or _END, None, None, is_tie=False
    )

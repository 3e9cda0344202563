"""How full a tenant's budgets are, in the header fields that OpenAI's clients know."""

from collections.abc import Iterator

from steelyard.policies.budgets import Gauge, Verdict

__all__ = ["NAMES", "limit_headers"]

NAMES = tuple(
    f"x-ratelimit-{what}-{kind}"
    for kind in ("requests", "tokens")
    for what in ("limit", "remaining", "reset")
)
"""All fields there can be."""


def limit_headers(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Three fields per budget; none for what is unlimited."""
    return (*_fields("requests", verdict.requests), *_fields("tokens", verdict.tokens))


def _fields(kind: str, gauge: Gauge | None) -> Iterator[tuple[str, str]]:
    if gauge is not None:
        yield f"x-ratelimit-limit-{kind}", str(gauge.limit)
        yield f"x-ratelimit-remaining-{kind}", str(gauge.remaining)
        yield f"x-ratelimit-reset-{kind}", _duration(gauge.reset_us)


def _duration(us: int) -> str:
    """`1m12s`, `6s`, `250ms`, as Go writes durations; rounded up, so that nobody comes early."""
    ms = -(-us // 1000)
    if ms < 1000:
        return f"{ms}ms"
    minutes, seconds = divmod(-(-ms // 1000), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"

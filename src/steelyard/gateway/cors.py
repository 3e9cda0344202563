"""Calls from web pages of other origins (the Fetch standard's CORS protocol), opt-in by origin.

Off by default: then no header is sent and browsers keep foreign pages out. Credentials are never
allowed, so `*` shares nothing that a page could not ask for itself.
"""

from steelyard.gateway.http import Answer, Exchange
from steelyard.gateway.limits import headers as limit_headers

__all__ = ["Cors"]

_EXPOSED = ", ".join(("x-request-id", "retry-after", *limit_headers.NAMES))


class Cors:
    """Allowed origins; empty switches it off."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = frozenset(origins)

    def allow(self, exchange: Exchange) -> None:
        """Add the headers that let an allowed page read the answer."""
        if not self._origins:
            return
        origin = exchange.header("origin")
        if origin is not None and (origin in self._origins or "*" in self._origins):
            granted = "*" if "*" in self._origins else origin
            exchange.answer_headers += (
                ("access-control-allow-origin", granted),
                ("access-control-expose-headers", _EXPOSED),
                ("vary", "Origin"),
            )

    def is_preflight(self, exchange: Exchange) -> bool:
        """True for a browser's question whether it may send the real request."""
        return (
            bool(self._origins)
            and exchange.method == "OPTIONS"
            and exchange.header("access-control-request-method") is not None
        )

    async def answer_preflight(self, exchange: Exchange) -> None:
        """Say yes to allowed origins (`allow` has added the grant), nothing to others."""
        await exchange.send(
            Answer(
                status=204,
                headers=(
                    ("access-control-allow-methods", "GET, POST, DELETE"),
                    ("access-control-allow-headers", "authorization, content-type, x-request-id"),
                    ("access-control-max-age", "600"),
                ),
            )
        )

"""Which handler answers which method and path; and what to say when none does.

A table of exact paths and a few prefixes. HEAD comes with GET, OPTIONS with everything.
"""

from collections.abc import Awaitable, Callable

from steelyard.gateway.errors import http_refusal
from steelyard.gateway.http.answers import Answer
from steelyard.gateway.http.exchange import Exchange

__all__ = ["Handler", "Router"]

Handler = Callable[[Exchange], Awaitable[None]]


class Router:
    """Filled at the start, only read afterwards."""

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, Handler]] = {}
        self._prefixes: list[tuple[str, dict[str, Handler]]] = []

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Route `path`; one that ends in `/*` takes everything below it."""
        if path.endswith("/*"):
            methods: dict[str, Handler] = {}
            self._prefixes.append((path[:-1], methods))
        else:
            methods = self._exact.setdefault(path, {})
        methods[method] = handler
        if method == "GET":
            methods["HEAD"] = handler

    @property
    def templates(self) -> tuple[str, ...]:
        """All paths, those of prefixes with `*`."""
        return (*self._exact, *(prefix + "*" for prefix, _ in self._prefixes))

    def find(self, exchange: Exchange) -> Handler:
        """The handler; notes the route in the exchange.

        Raises `Refusal` 404 for an unknown path, 405 for a wrong method.
        """
        method, path = exchange.method, exchange.path
        template, methods = self._match(path)
        if methods is None:
            raise http_refusal(404, "not_found", f"There is no {_shown(path)} here.")
        exchange.route = template
        handler = methods.get(method)
        if handler is not None:
            return handler
        allow = ", ".join(sorted({*methods, "OPTIONS"}))
        if method == "OPTIONS":
            return _options(allow)
        raise http_refusal(
            405,
            "method_not_allowed",
            f"{_shown(path)} does not take {_shown(method)}; use {allow}.",
            headers=(("allow", allow),),
        )

    def _match(self, path: str) -> tuple[str, dict[str, Handler] | None]:
        methods = self._exact.get(path)
        if methods is not None:
            return path, methods
        for prefix, below in self._prefixes:
            if path.startswith(prefix) and len(path) > len(prefix):
                return prefix + "*", below
        return "unknown", None


def _options(allow: str) -> Handler:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(Answer(status=204, headers=(("allow", allow),)))

    return answer


def _shown(text: str) -> str:
    """The client's own text, short and printable."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:80])

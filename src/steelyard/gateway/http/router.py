"""Which handler answers which method and path, and what it asks of callers.

A table of exact paths and a few prefixes: what is not in it does not exist. HEAD comes with GET,
OPTIONS with everything.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from steelyard.gateway.caller import Access
from steelyard.gateway.errors import http_refusal
from steelyard.gateway.http.answers import Answer
from steelyard.gateway.http.exchange import Exchange

__all__ = ["Handler", "Route", "Router"]

Handler = Callable[[Exchange], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """One path, or all paths below one."""

    template: str
    access: Access
    """What callers need, whatever the method."""
    handlers: dict[str, Handler] = field(default_factory=dict)

    def handler(self, exchange: Exchange) -> Handler:
        """Of the exchange's method. Raises `Refusal` 405 when there is none."""
        found = self.handlers.get(exchange.method)
        if found is not None:
            return found
        allow = ", ".join(sorted({*self.handlers, "OPTIONS"}))
        if exchange.method == "OPTIONS":
            return _options(allow)
        raise http_refusal(
            405,
            "method_not_allowed",
            f"{_shown(exchange.path)} does not take {_shown(exchange.method)}; use {allow}.",
            headers=(("allow", allow),),
        )


class Router:
    """Filled at the start, only read afterwards."""

    def __init__(self) -> None:
        self._exact: dict[str, Route] = {}
        self._prefixes: list[tuple[str, Route]] = []

    def add(self, method: str, path: str, handler: Handler, access: Access) -> None:
        """Route `path`; one that ends in `/*` takes everything below it."""
        route = next((route for route in self.routes if route.template == path), None)
        if route is None:
            route = Route(path, access)
            if path.endswith("/*"):
                self._prefixes.append((path[:-1], route))
            else:
                self._exact[path] = route
        assert route.access is access, f"all methods of {path} ask for the same"
        route.handlers[method] = handler
        if method == "GET":
            route.handlers["HEAD"] = handler

    @property
    def routes(self) -> tuple[Route, ...]:
        """All of them."""
        return (*self._exact.values(), *(route for _, route in self._prefixes))

    def find(self, exchange: Exchange) -> Route:
        """The route of the exchange's path, which it notes there. Raises `Refusal` 404."""
        route = self._match(exchange.path)
        if route is None:
            raise http_refusal(404, "not_found", f"There is no {_shown(exchange.path)} here.")
        exchange.route = route.template
        return route

    def _match(self, path: str) -> Route | None:
        route = self._exact.get(path)
        if route is not None:
            return route
        for prefix, below in self._prefixes:
            if path.startswith(prefix) and len(path) > len(prefix):
                return below
        return None


def _options(allow: str) -> Handler:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(Answer(status=204, headers=(("allow", allow),)))

    return answer


def _shown(text: str) -> str:
    """The client's own text, short and printable."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:80])

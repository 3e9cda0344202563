"""What happens around every request of every listener: a name, an answer, and errors in words."""

import logging
from collections.abc import Awaitable, Callable

from steelyard.contract.errors import SteelyardError
from steelyard.gateway.errors import Refusal, explain
from steelyard.gateway.http import Exchange
from steelyard.gateway.request_id import request_id

__all__ = ["respond"]

_log = logging.getLogger(__name__)


async def respond(exchange: Exchange, answer: Callable[[Exchange], Awaitable[None]]) -> None:
    """Let `answer` answer; what it raises becomes a refusal."""
    exchange.name(request_id(exchange.header("x-request-id")))
    try:
        await answer(exchange)
    except Refusal as refusal:
        await exchange.refuse(refusal)
    except SteelyardError as error:
        explained = explain(error)
        if explained.status >= 500:
            _log.warning("request %s: %s: %s", exchange.request_id, error.code, error)
        await exchange.refuse(explained)

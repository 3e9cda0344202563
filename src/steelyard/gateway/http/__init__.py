"""HTTP/1.1 under our own deadlines and byte caps, on aiohttp's parser and protocol.

`server` listens, `connection` guards one socket, `exchange` is one request and its answer,
`event_stream` the answer as server-sent events. Nothing here knows what is asked for.
"""

from steelyard.gateway.http.answers import Answer, json_answer
from steelyard.gateway.http.call import Call
from steelyard.gateway.http.connection import ClientGone
from steelyard.gateway.http.event_stream import EventStream
from steelyard.gateway.http.exchange import Exchange
from steelyard.gateway.http.router import Handler, Route, Router
from steelyard.gateway.http.server import HttpServer, require_address

__all__ = [
    "Answer",
    "Call",
    "ClientGone",
    "EventStream",
    "Exchange",
    "Handler",
    "HttpServer",
    "Route",
    "Router",
    "json_answer",
    "require_address",
]

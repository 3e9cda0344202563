"""The door: OpenAI-compatible HTTP in front of engines, text outside and token ids inside.

`app` is the whole; `http` speaks HTTP/1.1 under deadlines and caps; `api` holds what clients may
say; `generation` is the path of an inference request; `routes` answers everything else. Engines
are only known as `contract.Engine`; starting and replacing them is `fleet`'s work.
"""

from steelyard.gateway.app import Gateway, build_gateway, serve
from steelyard.gateway.config import GatewayConfig, HttpLimits, RequestLimits
from steelyard.gateway.models import ServedModel

__all__ = [
    "Gateway",
    "GatewayConfig",
    "HttpLimits",
    "RequestLimits",
    "ServedModel",
    "build_gateway",
    "serve",
]

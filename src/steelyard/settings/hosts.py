"""Addresses that a listener can have, as settings write them."""

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator

from steelyard.settings.quantities import BadValue

__all__ = ["Host", "is_loopback"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")


def _host(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if "/" in value:
            raise BadValue("is a URL", "use a host name or an IP address alone") from None
        if ":" in value:
            raise BadValue("holds a port", "put the port into gateway.port") from None
        if not _NAME.fullmatch(value):
            raise BadValue("is no host", "use a host name or an IP address") from None
    return value


Host = Annotated[str, AfterValidator(_host)]
"""A host name or an IP address, without a port."""


def is_loopback(host: str) -> bool:
    """True when only this machine can connect there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

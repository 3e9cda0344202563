"""The id that joins a request's answer, log lines and metrics.

A client may bring its own in `x-request-id`; one that could break a log or a header is replaced,
not refused. The engine never sees it: ids there must be unique, and clients repeat themselves.
"""

import os
import re

__all__ = ["request_id"]

_VALID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


def request_id(from_client: str | None) -> str:
    """The client's id when it is harmless, otherwise a fresh one."""
    if from_client is not None and _VALID.fullmatch(from_client):
        return from_client
    return "req-" + os.urandom(12).hex()

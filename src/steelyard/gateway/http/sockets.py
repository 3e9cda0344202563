"""Options of client sockets that asyncio does not set."""

import asyncio
import socket
import sys

__all__ = ["limit_unsent_bytes"]

# Python's socket module does not name it; the numbers are part of the kernels' interface.
_TCP_NOTSENT_LOWAT = {"linux": 25, "darwin": 0x201}.get(sys.platform)


# Enough to fill a fast path for a few milliseconds, whatever the buffers of ours are set to.
_UNSENT_BYTES = 64 * 1024


def limit_unsent_bytes(transport: asyncio.Transport) -> None:
    """Let the kernel hold little that was not sent yet.

    Without it a slow reader is noticed only after the send buffer has grown to megabytes. Does
    nothing where the platform has no such option or the transport is not TCP.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or _TCP_NOTSENT_LOWAT is None:
        return
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT_BYTES)

"""How a request can end. Only complete ones have a latency; every other end is counted by name."""

import enum

__all__ = ["EventKind", "Outcome", "RequestFlag"]


class Outcome(enum.IntEnum):
    """The end of a request. Numbers are stored in records and never change."""

    COMPLETE = 0
    """Answered to the end, with at least one token."""
    SHED = 1
    """Turned away because of load: 429, or 503 with Retry-After."""
    REFUSED = 2
    """Any other 4xx: the server thinks that the request is wrong."""
    SERVER_ERROR = 3
    """Any other 5xx."""
    CONNECT_FAILED = 4
    """No connection could be made."""
    RESET = 5
    """The connection broke before the answer was complete."""
    STREAM_ERROR = 6
    """An error event in a stream that had begun with 200."""
    TRUNCATED = 7
    """The stream ended in peace, but without a finish reason: tokens are missing."""
    STALLED = 8
    """Nothing came for longer than the stall limit."""
    TIMED_OUT = 9
    """The answer was not complete within the time limit."""
    MALFORMED = 10
    """The answer was not HTTP, or its events were not what a completion consists of."""
    EMPTY = 11
    """Complete, but without a single token: it has no first token to wait for."""
    ABANDONED = 12
    """The run ended, or was interrupted, before the answer was complete. No fault of the server."""
    CLIENT_FAILED = 13
    """This client could not do it, as when it is out of descriptors: a fault of the measurement."""

    @property
    def label(self) -> str:
        """For tables: `timed out`."""
        return self.name.lower().replace("_", " ")


class EventKind(enum.IntEnum):
    """What tokens of a stream were for."""

    ANSWER = 0
    REASONING = 1


class RequestFlag(enum.IntFlag):
    """Facts about how a request was observed."""

    NEW_CONNECTION = 1
    BUNDLED = 2
    """At least one event brought several tokens."""
    ESTIMATED = 4
    """How many tokens its events brought is estimated from their lengths; the sum is known."""
    NOT_STREAMED = 8
    """The answer came in one piece: no first token, no gaps."""
    WARM_UP = 16
    """Sent before the measurement, to fill caches."""

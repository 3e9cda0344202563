"""A line of a batch as a call: it takes the path of any other request, without a connection."""

from steelyard.contract.errors import InvalidRequest
from steelyard.gateway.batches.objects import BatchRecord
from steelyard.gateway.caller import Access, Caller
from steelyard.gateway.errors import Refusal, http_refusal
from steelyard.gateway.http import Answer, EventStream
from steelyard.gateway.http.answers import Headers

__all__ = ["LineCall", "caller_of_batch"]

_GRANTS = frozenset({Access.OPEN, Access.KNOWN, Access.INFER})


class LineCall:
    """See `gateway.http.Call`. Nobody but the server ends it early."""

    interrupted_by: Refusal | None = http_refusal(503, "shutting_down", "The server shuts down.")

    def __init__(self, body: bytes, caller: Caller) -> None:
        self._body = body
        self.caller = caller
        self.answer_headers: Headers = ()
        self.answer: Answer | None = None
        """None until there is one."""

    def header(self, name: str) -> str | None:
        """A line has none."""
        return None

    async def read_body(self) -> bytes:
        """It was read before."""
        return self._body

    def open_stream(self) -> EventStream:
        """Raises `InvalidRequest`: a file is nobody who listens."""
        raise InvalidRequest(
            "a line of a batch cannot be streamed", param="stream", fix="Leave it out."
        )

    async def send(self, answer: Answer) -> None:
        """Keep it."""
        self.answer = answer


def caller_of_batch(record: BatchRecord) -> Caller:
    """Whoever created the batch, with no more than inference needs."""
    models = None if record.models is None else frozenset(record.models)
    return Caller(record.tenant, record.plan, _GRANTS, models)

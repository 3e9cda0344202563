"""What a check works with: it asks the server, makes claims, and leaves evidence.

One probe serves one check. A refused request means different things: of a plain one the check has
failed; of one with an optional parameter the server says that it does not offer it, and the check
is skipped with the server's words.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import msgspec

from steelyard.lab.verify.answers import Answer, Choice, Malformed, StreamedAnswer
from steelyard.lab.verify.endpoints import Endpoint, Subject, request_body
from steelyard.lab.verify.exchange import Exchange, HttpRequest, excerpt
from steelyard.lab.verify.findings import CheckFailed, NotOffered
from steelyard.lab.verify.http_client import CANNOT_CONNECT, Connection, send
from steelyard.lab.verify.offer import Offer
from steelyard.lab.verify.reading import read_answer, read_stream
from steelyard.lab.verify.schemas import ErrorBody
from steelyard.lab.verify.target import Target, VerifyConfig
from steelyard.lab.verify.ties import divergence
from steelyard.lab.verify.tokenizer import RemoteTokenizer

__all__ = ["Probe"]

_PLAIN = frozenset({"max_tokens", "temperature", "stream"})
"""Parameters that every server must take."""
_LOGPROBS = frozenset({"logprobs", "top_logprobs"})
_NOT_OFFERED = frozenset({400, 404, 405, 422, 501})
_DEFAULTS = {"max_tokens": 16, "temperature": 0}


class Probe:
    """The hands of one check."""

    def __init__(self, target: Target, offer: Offer, config: VerifyConfig) -> None:
        self.target = target
        self.offer = offer
        self.config = config
        self.tokenizer = RemoteTokenizer(target, offer)
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.witnesses: list[Exchange] = []
        """Exchanges that show the problems."""
        self.last: Exchange | None = None

    # Endpoints

    @property
    def main(self) -> Endpoint:
        """Where the prompt can be chosen freely, if anywhere."""
        return Endpoint.TEXT if Endpoint.TEXT in self.offer.endpoints else Endpoint.CHAT

    def need(self, endpoint: Endpoint) -> None:
        """Skip the check where the server has no such endpoint."""
        if endpoint not in self.offer.endpoints:
            self.skip(f"there is no {endpoint.path}")

    def logprobs(self, endpoint: Endpoint, top: int = 5) -> dict[str, Any]:
        """Parameters that ask for log-probabilities, where there are any; else nothing."""
        return endpoint.logprobs(top) if endpoint in self.offer.logprobs else {}

    # Asking

    async def ask(self, endpoint: Endpoint, subject: Subject, **parameters: Any) -> Answer:
        """A whole answer. Greedy and short unless `parameters` say otherwise."""
        exchange = await self.post(endpoint, subject, **parameters)
        self._judge(exchange, parameters)
        self.claim(
            exchange.content_type == "application/json",
            f"the answer's content type is {exchange.header('content-type')}",
            exchange,
        )
        try:
            return read_answer(endpoint, exchange)
        except Malformed as error:
            self.fail(str(error), exchange)

    async def stream(
        self, endpoint: Endpoint, subject: Subject, **parameters: Any
    ) -> StreamedAnswer:
        """A streamed answer, read to its end."""
        exchange = await self.post(endpoint, subject, stream=True, **parameters)
        self._judge(exchange, parameters)
        try:
            return read_stream(endpoint, exchange)
        except Malformed as error:
            self.fail(str(error), exchange)

    async def post(self, endpoint: Endpoint, subject: Subject, **parameters: Any) -> Exchange:
        """What `endpoint` says, whatever the status."""
        self.need(endpoint)
        return await self.send(self.request(endpoint, subject, **parameters))

    def request(self, endpoint: Endpoint, subject: Subject, **parameters: Any) -> HttpRequest:
        """The request that `ask` would send."""
        body = request_body(endpoint, self.offer.model, subject, {**_DEFAULTS, **parameters})
        return HttpRequest("POST", endpoint.path, msgspec.json.encode(body))

    async def get(self, path: str) -> Exchange:
        """GET `path`; skips the check where the server has no such path."""
        if path not in self.offer.paths:
            self.skip(f"there is no {path}")
        return await self.send(HttpRequest("GET", path))

    async def send(self, request: HttpRequest) -> Exchange:
        """Any request, on a connection of its own."""
        self.last = await send(self.target, request)
        return self.last

    async def connect(self) -> Connection:
        """A connection for several requests. The caller closes it."""
        try:
            return await Connection.open(self.target)
        except CANNOT_CONNECT as error:
            self.fail(f"cannot connect: {error or 'no answer'}")

    # Judging

    def claim(self, holds: bool, problem: str, *witnesses: Exchange | Answer) -> bool:
        """Note a problem unless the claim holds; the check goes on."""
        if not holds:
            if problem not in self.problems:
                self.problems.append(problem)
            self._witness(witnesses)
        return holds

    def fail(self, problem: str, *witnesses: Exchange | Answer) -> NoReturn:
        """Note a problem and end the check."""
        self.claim(False, problem, *witnesses)
        raise CheckFailed(problem)

    def skip(self, reason: str) -> NoReturn:
        """End the check without a verdict."""
        raise NotOffered(reason)

    def note(self, text: str) -> None:
        """Something worth knowing even when all is well."""
        self.notes.append(text)

    def take_over(self, other: "Probe") -> None:
        """Make another probe's problems, notes and witnesses this one's."""
        self.problems += other.problems
        self.notes += other.notes
        self.witnesses += other.witnesses

    def agree(self, left: Answer, right: Answer, what: str) -> bool:
        """Claim that two greedy answers are equal, up to ties."""
        return self.choices_agree(left.choice, right.choice, what, left, right)

    def choices_agree(
        self, left: Choice, right: Choice, what: str, *witnesses: Exchange | Answer
    ) -> bool:
        """As `agree`, for single choices."""
        found = divergence(left, right, self.config.tie_nats)
        if found is not None and found.is_tie:
            self.note(f"a tie {found.shown} ({what})")
            return True
        return self.claim(
            found is None, f"{what} differ {found.shown if found else ''}", *witnesses
        )

    def effect(self, holds: bool, problem: str, is_known: bool, *witnesses: Answer) -> bool:
        """As `claim`, for an extension: without effect and unknown to the server means skipped."""
        if not holds and not is_known:
            self.skip("accepted, but neither validated nor obeyed")
        return self.claim(holds, problem, *witnesses)

    async def knows(self, endpoint: Endpoint, name: str) -> bool:
        """True when the server shows that it knows the parameter: it refuses a senseless value.

        A server that refuses unknown names has said that it knows every name it takes.
        """
        if self.offer.refuses_unknown:
            return True
        exchange = await self.post(endpoint, "Hi", max_tokens=1, **{name: {"not": "sensible"}})
        return 400 <= exchange.status < 500

    def refused(
        self, exchange: Exchange, what: str, statuses: Iterable[int] = range(400, 500)
    ) -> bool:
        """Claim that a bad request got a proper error: status, type, shape, and no internals."""
        if not exchange.status:
            return self.claim(False, f"{what}: {'; '.join(exchange.faults)}", exchange)
        if exchange.status not in statuses:
            return self.claim(False, f"{what} got status {exchange.status}", exchange)
        is_json = self.claim(
            exchange.content_type == "application/json",
            f"{what}: the error's content type is {exchange.header('content-type')}",
            exchange,
        )
        try:
            body = msgspec.convert(exchange.json(), ErrorBody)
        except (ValueError, msgspec.ValidationError) as error:
            return self.claim(False, f"{what}: the error has not OpenAI's shape: {error}", exchange)
        is_said = self.claim(bool(body.error.message), f"{what}: the error says nothing", exchange)
        is_safe = self.claim(
            not any(sign in body.error.message for sign in _INTERNALS),
            f"{what}: the error shows the server's internals",
            exchange,
        )
        return is_json and is_said and is_safe

    def _judge(self, exchange: Exchange, parameters: dict[str, Any]) -> None:
        if exchange.is_ok:
            self.claim(not exchange.faults, "; ".join(exchange.faults), exchange)
            return
        if not exchange.status:
            self.fail("; ".join(exchange.faults) or "there was no answer", exchange)
        plain = _PLAIN | _LOGPROBS if self.offer.logprobs else _PLAIN
        optional = sorted(parameters.keys() - plain)
        said = excerpt(exchange.body.decode("utf-8", "replace"), 200)
        if exchange.status in _NOT_OFFERED and optional:
            self.skip(f"refused with {', '.join(optional)}: {exchange.status} {said}")
        self.fail(f"a valid request got status {exchange.status}: {said}", exchange)

    def _witness(self, witnesses: Sequence[Exchange | Answer]) -> None:
        for one in witnesses:
            exchange = one.exchange if isinstance(one, Answer) else one
            if exchange not in self.witnesses:
                self.witnesses.append(exchange)


_INTERNALS = ("Traceback (most recent call last)", 'File "/', "site-packages", "0x7f")

"""The mock server: accepts connections, routes requests, and ties plans, serving and answers.

    startup() → requests are answered → shutdown()

One event loop, one thread. Timing is decided by `serving`, kept by `precise_timers`.
"""

import asyncio
import errno
import itertools
import socket
import time
from pathlib import Path

import msgspec

from steelyard.contract.errors import SettingsError
from steelyard.lab.mock.answers import Refusal, render_answer
from steelyard.lab.mock.config import MockConfig
from steelyard.lab.mock.connections import Connection, HttpRequest
from steelyard.lab.mock.gateway_stage import GatewayStage
from steelyard.lab.mock.generations import Generation
from steelyard.lab.mock.metrics import MockMetrics
from steelyard.lab.mock.plans import Plan, Planner
from steelyard.lab.mock.precise_timers import PreciseTimers
from steelyard.lab.mock.rendering import Rendering
from steelyard.lab.mock.requests import Endpoint, MockRequest, read_request
from steelyard.lab.mock.serving import Job, Serving
from steelyard.lab.mock.text import MockText
from steelyard.lab.mock.timers import NS_PER_S
from steelyard.lab.mock.timing_error import TimingError, TimingSummary
from steelyard.lab.mock.truth import RequestTruth, TruthWriter

__all__ = ["MockServer"]

_FLUSH_NS = NS_PER_S // 5
_BACKLOG = 4096
_ENDPOINTS: dict[str, Endpoint] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completion",
}


class MockServer:
    """An OpenAI-compatible server whose every time is known."""

    def __init__(self, config: MockConfig) -> None:
        self.config = config
        self.text = MockText(config.client_tokens_per_token)
        self.timing = TimingError()
        self._planner = Planner(config, self.text)
        self._connections: dict[Connection, Generation | None] = {}
        self._jobs: dict[Generation, Job] = {}
        self._connection_numbers = itertools.count()
        self._started_unix_s = int(time.time())

    @property
    def address(self) -> tuple[str, int]:
        """Host and port listened on. Valid between `startup` and `shutdown`."""
        host, port, *_ = self._listener.getsockname()
        return host, port

    @property
    def url(self) -> str:
        """Where clients find the API, without `/v1`."""
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def startup(self) -> None:
        """Listen. Raises `SettingsError` when the address or the truth file cannot be had."""
        self._loop = asyncio.get_running_loop()
        self._listener = _listen(self.config)
        self._truth = None
        if self.config.truth is not None:
            self._truth = TruthWriter(Path(self.config.truth), _as_text(self.config))
        self.timers = PreciseTimers(spin_us=self.config.spin_us)
        self._serving = Serving(self.config, self.timers)
        self._gateway = GatewayStage(self.timers, self.config.gateway_us_per_event)
        self._metrics = MockMetrics(self.config, self._serving)
        self._loop.add_reader(self._listener, self._accept)
        if self._truth is not None:
            self.timers.at(self.timers.now_ns() + _FLUSH_NS, _flush_again, self)

    async def shutdown(self) -> None:
        """Close everything; running answers break off."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection, generation in list(self._connections.items()):
            if generation is not None:
                generation.abandon("shutdown")
            connection.close()
        self.timers.close()
        if self._truth is not None:
            self._truth.close()

    def timing_summary(self) -> TimingSummary:
        """How late tokens were sent so far."""
        return self.timing.summary()

    def flush_truth(self) -> None:
        """Let readers of the truth file see every request that has ended."""
        if self._truth is not None:
            self._truth.flush()

    # What connections call.

    def now_ns(self) -> int:
        return self.timers.now_ns()

    def handle(self, connection: Connection, request: HttpRequest) -> None:
        endpoint = _ENDPOINTS.get(request.path)
        if endpoint is not None and request.method == "POST":
            self._generate(endpoint, connection, request)
            return
        try:
            answer = self._look_up(request)
        except Refusal as refusal:
            answer = _refusal_answer(refusal, close=request.will_close)
        connection.send(answer)
        connection.answered(close=request.will_close)

    def lost(self, connection: Connection) -> None:
        generation = self._connections.pop(connection, None)
        if generation is not None:
            generation.abandon("client_gone")

    # What generations call.

    def ended(self, generation: Generation, *, close: bool) -> None:
        job = self._jobs.pop(generation)
        self._serving.withdraw(job)
        truth = generation.truth
        truth.slot_ns, truth.prefilled_ns = job.slot_ns, job.prefilled_ns
        truth.preemptions = job.preemptions
        self._record(truth, job)
        connection = generation.connection
        if connection in self._connections:
            self._connections[connection] = None
            connection.answered(close=close)

    def _generate(self, endpoint: Endpoint, connection: Connection, http: HttpRequest) -> None:
        """Plan an answer and put it in line, or refuse it."""
        self._metrics.requests_received += 1
        truth = RequestTruth(
            index=-1,
            request_id=_request_id(http.headers.get("x-request-id"), self._metrics),
            endpoint=endpoint,
            is_stream=False,
            connection=connection.number,
            header_ns=http.begun_ns,
            arrived_ns=self.timers.now_ns(),
        )
        try:
            request = read_request(endpoint, http.body, self.text)
            truth.is_stream, truth.prompt_tokens = request.is_stream, request.prompt_tokens
            plan = self._planner.plan(request)
            truth.index = plan.index
            self._refuse_if_planned(plan)
        except Refusal as refusal:
            self._refuse(connection, http, truth, refusal)
            return
        self._start(connection, http, request, plan, truth=truth)

    def _refuse_if_planned(self, plan: Plan) -> None:
        """Raises `Refusal` for the faults that are answers, and when the queue is full."""
        if plan.fault == "500":
            raise Refusal(500, "A planted failure.", code="internal_error")
        if plan.fault == "429" or not self._serving.can_queue():
            retry = f"retry-after: {self.config.retry_after_s:g}\r\n"
            raise Refusal(429, "Too many requests.", code="overloaded", headers=retry)

    def _start(
        self,
        connection: Connection,
        http: HttpRequest,
        request: MockRequest,
        plan: Plan,
        *,
        truth: RequestTruth,
    ) -> None:
        rendering = Rendering(
            request.endpoint,
            answer_id=f"{'chatcmpl' if request.endpoint == 'chat' else 'cmpl'}-{plan.index}",
            created=self._started_unix_s,
            model=self.config.model,
            reasoning_field=self.config.reasoning_field,
        )
        generation = Generation(
            self,
            connection,
            request=request,
            plan=plan,
            rendering=rendering,
            truth=truth,
            will_close=http.will_close,
        )
        job = Job(plan, self._gateway.in_front_of(generation), truth.arrived_ns)
        self._connections[connection] = generation
        self._jobs[generation] = job
        generation.begin()
        self._serving.submit(job)

    def _refuse(
        self, connection: Connection, http: HttpRequest, truth: RequestTruth, refusal: Refusal
    ) -> None:
        connection.send(_refusal_answer(refusal, truth.request_id, close=http.will_close))
        truth.head_ns = truth.ended_ns = self.timers.now_ns()
        truth.status = refusal.status
        planned = truth.index >= 0 and refusal.status in (429, 500)
        truth.outcome = str(refusal.status) if planned else "refused"
        self._record(truth, None)
        connection.answered(close=http.will_close)

    def _record(self, truth: RequestTruth, job: Job | None) -> None:
        self._metrics.ended(truth, job)
        if self._truth is not None:
            self._truth.write(truth)

    def _look_up(self, request: HttpRequest) -> bytes:
        """Everything that is not a generation. Raises `Refusal`."""
        if request.path in _ENDPOINTS:
            raise Refusal(405, "Use POST.", code="method_not_allowed")
        if request.path == "/metrics":
            unsent_bytes = sum(connection.unsent_bytes for connection in self._connections)
            page = self._metrics.render(self.timing.summary(), unsent_bytes)
            return render_answer(200, page, content_type="text/plain; version=0.0.4")
        if request.path == "/v1/models":
            entry = {"id": self.config.model, "object": "model", "owned_by": "steelyard"}
            details = {"created": self._started_unix_s, "max_model_len": self.config.context_tokens}
            body = msgspec.json.encode({"object": "list", "data": [{**entry, **details}]})
        elif request.path in ("/health", "/readiness"):
            body = b'{"status":"ok"}'
        elif request.path == "/version":
            body = msgspec.json.encode({"version": "mock"})
        elif request.path == "/mock/timing":
            body = msgspec.json.encode(self.timing.summary())
        elif request.path == "/mock/config":
            body = msgspec.json.encode(_as_text(self.config))
        else:
            raise Refusal(404, f"There is no {request.path} here.", code="not_found")
        return render_answer(200, body, close=request.will_close)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    return  # the client waits in the backlog until a connection closes
                continue  # this client has left already
            connection = Connection(sock, next(self._connection_numbers), self, self._loop)
            self._connections[connection] = None


def _flush_again(server: MockServer, due_ns: int) -> None:
    server.flush_truth()
    server.timers.at(due_ns + _FLUSH_NS, _flush_again, server)


def _listen(config: MockConfig) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        listener = socket.create_server((config.host, config.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        raise SettingsError(
            f"cannot listen on {config.host}:{config.port}: {error.strerror or error}",
            param="port" if in_use else "host",
            fix="take another port; 0 takes a free one" if in_use else "",
        ) from error
    listener.setblocking(False)
    return listener


def _request_id(given: str | None, metrics: MockMetrics) -> str:
    if given and len(given) <= 128 and given.isascii() and given.isprintable():
        return given
    return f"mock-{metrics.requests_received - 1}"


def _refusal_answer(refusal: Refusal, request_id: str = "", *, close: bool) -> bytes:
    named = f"x-request-id: {request_id}\r\n" if request_id else ""
    return render_answer(refusal.status, refusal.body, headers=refusal.headers + named, close=close)


def _as_text(config: MockConfig) -> dict[str, str]:
    return {name: str(getattr(config, name)) for name in MockConfig.__struct_fields__}

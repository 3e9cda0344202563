"""`contract.Engine` on a server of another make, over HTTP.

    connect    ask until the server has produced a real token
    generate   one POST, whose events become chunks; each proven to be the next of its stream
    wait_lost  look at its health until it is gone

Whoever closes a stream early closes its connection, which is how such servers learn of an abort.
What goes over the wire is a `Dialect`'s business.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

from steelyard.backends.http.client import EventStream, HttpClient
from steelyard.backends.http.dialect import Delta, Dialect, Load, Reader
from steelyard.backends.http.failures import is_absence
from steelyard.backends.http.flight import Flight
from steelyard.contract import (
    Clock,
    EngineInfo,
    EngineStatus,
    GenerateRequest,
    RealClock,
    SamplingParams,
    TokenChunk,
)
from steelyard.contract.clock import within
from steelyard.contract.errors import (
    Cancelled,
    EngineDraining,
    EngineLost,
    EngineStalled,
    InvalidRequest,
    Never,
    SettingsError,
    SteelyardError,
    UnsupportedFeature,
)
from steelyard.contract.wire import Progress

__all__ = ["HttpEngine"]

_log = logging.getLogger(__name__)

_RETRY_S = 0.25
_LAST_WORDS_S = 0.2
_MISSES = 3
"""Looks at its health in a row that must fail before a server counts as lost."""
_FIX = "name a server with the OpenAI API in remote.url, and its key in remote.api_key_file"


class HttpEngine:
    """A client of one server. Stays the same object while the server comes and goes: after a loss,
    `connect` again, and `info.epoch` tells that it is a new one. Used from one event loop."""

    def __init__(self, client: HttpClient, dialect: Dialect, *, clock: Clock | None = None) -> None:
        self._client = client
        self._dialect = dialect
        self._clock = clock or RealClock()
        self.explain_absence: Callable[[], SteelyardError] = self._not_connected
        """What requests are told while nobody is there; see `backends.embedded`."""
        self.on_refusal: Callable[[SteelyardError], None] = _ignore
        """Told once what keeps the server from ever serving; never after it has served."""
        self._info: EngineInfo | None = None
        self._was_ready = False
        self._flights: dict[str, Flight] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._idle = asyncio.Event()
        self._doubt = asyncio.Event()
        """Set when the server should be looked at now."""
        self._counts = {"produced": 0, "prompt": 0, "finished": 0, "aborted": 0, "failed": 0}

    # Connecting.

    @property
    def info(self) -> EngineInfo:
        """Fixed facts of the server. Raises `explain_absence()` when none is connected."""
        if self._info is None:
            raise self.explain_absence()
        return self._info

    async def connect(
        self, *, timeout_s: float, on_progress: Callable[[Progress], None] | None = None
    ) -> EngineInfo:
        """Return once the server has produced a token; asks again and again until then.

        Raises `EngineStalled` after `timeout_s`, and at once what waiting cannot help.
        """
        await self._disconnect("the connection is made anew")
        try:
            self._info = await within(self._clock, timeout_s, self._reach(on_progress))
        except Never as error:
            await self._client.close()
            if not self._was_ready:
                self.on_refusal(error)
            raise
        except TimeoutError as error:
            await self._client.close()
            raise EngineStalled(
                f"the engine at {self._client.config.url} was not ready after {timeout_s:g} s"
            ) from error
        self._was_ready, self._is_draining = True, False
        return self._info

    async def wait_lost(self) -> EngineLost:
        """Return, with the reason, once the server is gone; at once when none is connected."""
        config = self._client.config
        misses = 0
        while self._info is not None:
            with contextlib.suppress(TimeoutError):
                await within(self._clock, config.health_s, self._doubt.wait())
            self._doubt.clear()
            try:
                await self._dialect.check(self._client)
            except SteelyardError as error:
                misses += 1
                if is_absence(error) or misses >= _MISSES:
                    await self._disconnect(error.message)
                    return EngineLost(error.message)
            else:
                misses = 0
        return EngineLost("not connected")

    # contract.Engine

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        """See `contract.Engine`. The loop that runs once per event of every stream."""
        self._refuse_if_impossible(request)
        call = self._dialect.call(request)
        reader = self._dialect.reader(request)
        with self._flying(request) as flight:
            async with (
                flight.opening(self._client.events(call.path, call.body)) as events,
                contextlib.aclosing(_deltas(flight, events, reader)) as deltas,
            ):
                async for delta in deltas:
                    chunk = flight.take(delta)
                    self._counts["produced"] += len(chunk.token_ids)
                    yield chunk
                    if chunk.finish_reason is not None:
                        return
            raise EngineLost("the endpoint ended a stream without a finish reason")

    async def abort(self, request_id: str) -> None:
        """Stop a request; whoever iterates over it gets `Cancelled`."""
        flight = self._flights.get(request_id)
        if flight is None:
            return
        flight.stop(Cancelled("the request was aborted"))
        await self._tell_aborted(request_id)

    async def status(self) -> EngineStatus:
        """A fresh snapshot; what the server does not say of itself is counted here."""
        info = self.info
        try:
            load = await self._dialect.measure(self._client)
        except SteelyardError as error:
            self._note_trouble(error)
            raise
        load = load or Load(running=len(self._flights))
        counts = self._counts
        return EngineStatus(
            state="draining" if self._is_draining else "ready",
            epoch=info.epoch,
            running=load.running,
            waiting=load.waiting,
            kv_blocks_used=load.kv_blocks_used,
            kv_blocks_total=load.kv_blocks_total,
            prompt_tokens_total=load.prompt_tokens_total or counts["prompt"],
            cached_tokens_total=load.cached_tokens_total,
            produced_tokens_total=load.produced_tokens_total or counts["produced"],
            preemptions_total=load.preemptions_total,
            finished_total=load.finished_total or counts["finished"],
            aborted_total=counts["aborted"],
            failed_total=counts["failed"],
        )

    async def warm(self, prompts: Sequence[Sequence[int]]) -> None:
        """Ask for one token after each prompt: that leaves it in the server's prefix cache."""
        for number, prompt in enumerate(prompts):
            sampling = SamplingParams(max_tokens=1, temperature=0.0)
            request = GenerateRequest(
                request_id=f"warm-{number}", prompt_ids=tuple(prompt), sampling=sampling
            )
            async for _ in self.generate(request):
                pass

    async def drain(self) -> None:
        """Refuse new requests; returns when those that came through here have ended."""
        self._is_draining = True
        while self._flights:
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        """Disconnect; running requests fail with `EngineLost`. Safe to repeat."""
        await self._disconnect("the connection was closed here")

    # What these are made of.

    async def _reach(self, on_progress: Callable[[Progress], None] | None) -> EngineInfo:
        told = ""
        while True:
            try:
                return await self._dialect.open(self._client)
            except Never:
                raise
            except SteelyardError as error:
                if error.param is not None:  # a setting is at fault, which no waiting changes
                    raise SettingsError(error.message, param=error.param, fix=_FIX) from error
                if error.message != told:
                    told = error.message
                    _log.info("not ready yet: %s", told)
                if on_progress is not None:
                    # Clients hear of it: no names, no addresses.
                    what = "nobody answers yet" if is_absence(error) else "not ready yet"
                    on_progress(Progress(0.0, what))
                await self._clock.sleep(_RETRY_S)

    async def _disconnect(self, reason: str) -> None:
        self._info = None
        for flight in tuple(self._flights.values()):
            flight.stop(EngineLost(reason))
        if self._telling:
            await asyncio.wait(self._telling, timeout=_LAST_WORDS_S)
        await self._client.close()

    def _refuse_if_impossible(self, request: GenerateRequest) -> None:
        info = self.info
        if self._is_draining:
            raise EngineDraining("the engine takes no new requests")
        if request.emitted_ids and not info.can_continue:
            raise UnsupportedFeature("an endpoint that only speaks text cannot continue a stream")
        if request.request_id in self._flights:
            raise InvalidRequest("this request id is in use", param="request_id")
        if len(request.emitted_ids) >= request.sampling.max_tokens:
            raise InvalidRequest("nothing is left to be produced", param="max_tokens")

    @contextlib.contextmanager
    def _flying(self, request: GenerateRequest) -> Iterator[Flight]:
        info = self.info
        flight = Flight(
            request,
            clock=self._clock,
            end_token_ids=info.end_token_ids,
            vocab_size=info.vocab_size,
            is_exact=info.can_continue,
        )
        self._flights[request.request_id] = flight
        self._counts["prompt"] += len(request.prompt_ids)
        try:
            yield flight
        except (GeneratorExit, asyncio.CancelledError):
            self._counts["aborted"] += 1
            self._send_abort(request.request_id)
            raise
        except SteelyardError as error:
            # A stream that we have ended ourselves breaks in some way of its own.
            reason = flight.reason or error
            self._counts["aborted" if isinstance(reason, Cancelled) else "failed"] += 1
            self._note_trouble(error)
            if reason is error:
                raise
            raise reason from error
        finally:
            self._counts["finished"] += flight.has_finished
            del self._flights[request.request_id]
            self._idle.set()

    def _send_abort(self, request_id: str) -> None:
        """In the background: whoever closes an iterator does not wait for servers."""
        telling = asyncio.create_task(self._tell_aborted(request_id))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell_aborted(self, request_id: str) -> None:
        with contextlib.suppress(SteelyardError):  # the closed connection says the same
            await self._dialect.abort(self._client, request_id)

    def _note_trouble(self, error: SteelyardError) -> None:
        if is_absence(error):
            self._info = None
        if isinstance(error, EngineLost):
            self._doubt.set()

    def _not_connected(self) -> SteelyardError:
        return EngineLost(f"no connection to the engine at {self._client.config.url}")


async def _deltas(
    flight: Flight, events: EventStream, reader: Reader
) -> AsyncGenerator[Delta, None]:
    while (payloads := await flight.wait_for(events.read())) is not None:
        for payload in payloads:
            delta = reader.read(payload)
            if delta is not None:
                yield delta
    delta = reader.end()
    if delta is not None:
        yield delta


def _ignore(_error: SteelyardError) -> None:
    pass

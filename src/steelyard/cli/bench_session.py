"""Runs a measurement in an event loop of its own: opens the session, follows it, ends it.

The first Ctrl-C ends the run that is under way and keeps what was measured; the next one gives up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import typer

from steelyard.cli.bench_flags import ClientFlags, OutputFlags, ServerFlags
from steelyard.cli.bench_progress import open_progress
from steelyard.cli.service import new_runner
from steelyard.gateway.stop_signals import StopSignals
from steelyard.lab.bench.session import Session, SessionOptions, Watcher
from steelyard.lab.client import Extras, Limits

__all__ = ["INTERRUPTED", "measure", "read_api_key", "read_session_options"]

INTERRUPTED = 130

ResultT = TypeVar("ResultT")


def read_session_options(server: ServerFlags, client: ClientFlags) -> SessionOptions:
    """Raises `typer.BadParameter` for what cannot be read."""
    return SessionOptions(
        url=server.url,
        model=server.model,
        api=server.api,
        is_streaming=server.stream,
        headers=_headers(server),
        body=_body(server),
        extras=Extras(ignore_eos=server.ignore_eos, return_token_ids=True),
        temperature=server.temperature,
        workers=client.workers,
        limits=Limits(request_s=client.timeout, stall_s=client.stall_timeout),
        tokenizer=client.tokenizer,
        sends_ids=client.send_ids,
        is_prompt=client.realtime,
        server_pid=server.server_pid,
    )


def measure(
    options: SessionOptions,
    output: OutputFlags,
    work: Callable[[Session], Awaitable[ResultT]],
) -> ResultT:
    """What `work` makes of the session. Ends the command when nothing was measured."""
    with open_progress(is_hidden=output.quiet) as watcher, new_runner() as runner:
        result = runner.run(_measure(options, watcher, work))
    if result is None:
        raise typer.Exit(INTERRUPTED)
    return result


async def _measure(
    options: SessionOptions, watcher: Watcher, work: Callable[[Session], Awaitable[ResultT]]
) -> ResultT | None:
    with StopSignals() as signals:
        opening = asyncio.ensure_future(Session.open(options, watcher))
        if not await _done_before(signals.first, opening):
            return None
        session = opening.result()
        stopping = asyncio.create_task(_stop(session, signals.first))
        working = asyncio.ensure_future(work(session))
        try:
            return working.result() if await _done_before(signals.second, working) else None
        finally:
            stopping.cancel()


async def _stop(session: Session, asked: asyncio.Event) -> None:
    await asked.wait()
    session.stop()


async def _done_before(event: asyncio.Event, work: "asyncio.Future[Any]") -> bool:
    """Whether the work ended before the event; if it did not, it is cancelled."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        return work.done()
    finally:
        waiting.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait((work,))


def _headers(server: ServerFlags) -> dict[str, str]:
    headers = {}
    for text in server.header or ():
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise typer.BadParameter(f"{text!r}: write NAME:VALUE", param_hint="--header")
        headers[name.strip()] = value.strip()
    if server.api_key_env is not None:
        headers["Authorization"] = f"Bearer {read_api_key(server.api_key_env)}"
    return headers


def read_api_key(variable: str) -> str:
    from steelyard.settings.paths import environment

    key = environment().get(variable)
    if not key:
        raise typer.BadParameter(f"{variable} is not set", param_hint="--api-key-env")
    return key


def _body(server: ServerFlags) -> dict[str, object]:
    """Values that are no JSON are texts."""
    body: dict[str, object] = {}
    for text in server.body or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{text!r}: write KEY=JSON", param_hint="--body")
        try:
            body[key] = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            body[key] = value
    return body

"""What `chat` and `run` have in common: who answers, and how answers reach the terminal."""

import contextlib
import io
import sys
from collections.abc import AsyncIterator

import aiohttp

from steelyard.cli.loading import LoadedFiles, load_files
from steelyard.cli.service import private_engine
from steelyard.cli.talking import EngineTalker, Message, ServerTalker, Talker
from steelyard.contract.errors import InvalidRequest
from steelyard.settings import Resolved

__all__ = ["open_talker", "opening_of", "require_text", "set_up_streams", "show"]

_CONNECT_S = 10.0
_SILENCE_S = 600.0
"""Servers that send no keep-alive comments may need long for their first word."""


def open_talker(
    resolved: Resolved, url: str | None, model: str | None
) -> contextlib.AbstractAsyncContextManager[Talker]:
    """The server at `url` (`model` None: its first model), or an engine for this command alone.

    Call it outside any event loop: it may have to fetch the model.
    """
    if url is not None:
        return _server(url, model)
    return _own_engine(resolved, load_files(resolved))


def opening_of(system: str | None) -> list[Message]:
    """How a conversation begins: with the system prompt, if there is one."""
    if system is None:
        return []
    return [{"role": "system", "content": require_text(system, "--system")}]


def require_text(text: str, what: str) -> str:
    """`text`, if it can be written as UTF-8. Raises `InvalidRequest` that names `what`."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest("is not UTF-8", param=what) from error
    return text


def set_up_streams() -> None:
    """Characters that standard input or output cannot express are replaced, not fatal."""
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # not when it is closed
            stream.reconfigure(errors="replace")


def show(piece: str) -> None:
    """Print a piece of an answer now; to a terminal, without what would steer it."""
    if sys.stdout is not None and sys.stdout.isatty():
        piece = piece.translate(_STEERING)
    print(piece, end="", flush=True)


_STEERING = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")})
"""Control characters: an answer must not be able to recolour, retitle or rewrite the screen."""


@contextlib.asynccontextmanager
async def _own_engine(resolved: Resolved, files: LoadedFiles) -> AsyncIterator[Talker]:
    async with private_engine(resolved, files) as served:
        yield EngineTalker(served.engine, files.text, served.wait_ready)


@contextlib.asynccontextmanager
async def _server(url: str, model: str | None) -> AsyncIterator[Talker]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        talker = ServerTalker(session, url, model)
        await talker.find_model()
        yield talker

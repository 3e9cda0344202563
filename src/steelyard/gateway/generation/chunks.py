"""Running engine requests: closed whatever happens, one or several at a time."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, TypeVar, cast

from steelyard.contract import Engine, GenerateRequest, TokenChunk

__all__ = ["open_chunks", "run_all"]

ResultT = TypeVar("ResultT")


def open_chunks(
    engine: Engine, request: GenerateRequest
) -> AbstractAsyncContextManager[AsyncGenerator[TokenChunk, None]]:
    """The chunks of `request`. Leaving the context early aborts it (see `contract.Engine`)."""
    return aclosing(cast(AsyncGenerator[TokenChunk, None], engine.generate(request)))


async def run_all(works: Sequence[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """All results, in order; the first failure cancels the others and is raised as it is."""
    if len(works) == 1:  # without a task of its own
        return [await works[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failures:
        raise _first_leaf(failures) from None
    return [task.result() for task in tasks]


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first_leaf(error) if isinstance(error, BaseExceptionGroup) else error

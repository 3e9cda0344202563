"""`/v1/files` and `/v1/batches` over HTTP. Every tenant sees its own only."""

import re
import time
from collections.abc import Awaitable, Callable, Set
from contextlib import aclosing
from typing import Annotated, Literal, NoReturn

import msgspec

from steelyard.contract.errors import Forbidden, InvalidRequest, NotFound, UnsupportedFeature
from steelyard.gateway.api.fields import FieldPolicy
from steelyard.gateway.api.json_body import BodyDecoder
from steelyard.gateway.batches.archive import new_id
from steelyard.gateway.batches.ledger import Ledger, Page
from steelyard.gateway.batches.lines import ENDPOINTS
from steelyard.gateway.batches.objects import (
    BatchObject,
    BatchRecord,
    FileDeleted,
    FileObject,
    ObjectList,
)
from steelyard.gateway.batches.service import BatchService
from steelyard.gateway.caller import Access
from steelyard.gateway.http import Exchange, Router, json_answer
from steelyard.gateway.http.upload import Form

__all__ = ["add_batch_routes"]

_WINDOW_S = 24 * 3600
_PAGE = 20
_MAX_PAGE = 1000
_METADATA_ENTRIES, _METADATA_CHARS = 16, 512
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f]")


def add_batch_routes(router: Router, service: BatchService | None, max_field_bytes: int) -> None:
    """Route both; `service` None: refuse in words."""
    for path, handlers in _handlers(service, max_field_bytes).items():
        for method, handler in handlers.items():
            router.add(method, path, handler, Access.INFER)


Handler = Callable[[Exchange], Awaitable[None]]


def _handlers(service: BatchService | None, max_field_bytes: int) -> dict[str, dict[str, Handler]]:
    if service is None:
        return {
            "/v1/files": {"POST": _refuse, "GET": _refuse},
            "/v1/files/*": {"GET": _refuse, "DELETE": _refuse},
            "/v1/batches": {"POST": _refuse, "GET": _refuse},
            "/v1/batches/*": {"GET": _refuse, "POST": _refuse},
        }
    files = FileRoutes(service)
    batches = BatchRoutes(service, max_field_bytes)
    return {
        "/v1/files": {"POST": files.upload, "GET": files.list},
        "/v1/files/*": {"GET": files.get, "DELETE": files.delete},
        "/v1/batches": {"POST": batches.create, "GET": batches.list},
        "/v1/batches/*": {"GET": batches.get, "POST": batches.cancel},
    }


async def _refuse(exchange: Exchange) -> NoReturn:
    raise UnsupportedFeature(
        "this server keeps no files and no batches",
        fix="Its operator can set gateway.batches.folder.",
    )


class FileRoutes:
    """`/v1/files`."""

    def __init__(self, service: BatchService) -> None:
        self._archive = service.archive

    async def upload(self, exchange: Exchange) -> None:
        """POST: a form with `purpose` (batch) and `file`."""
        _refuse_foreign_pages(exchange)
        async with self._archive.incoming(exchange.caller.tenant) as content:
            form = await exchange.read_form(content, self._archive.config.file_bytes)
            name = _checked_name(form)
            file = await self._archive.keep(
                content,
                tenant=exchange.caller.tenant,
                size=form.file_bytes,
                name=name,
                purpose=form.fields["purpose"],
            )
        await exchange.send(json_answer(file))

    async def list(self, exchange: Exchange) -> None:
        """GET."""
        page = _page(exchange, {"purpose"})
        tenant, purpose = exchange.caller.tenant, exchange.query.get("purpose")
        found = await self._archive.call(Ledger.files, tenant, purpose, page)
        await exchange.send(json_answer(_list(found, page)))

    async def get(self, exchange: Exchange) -> None:
        """GET of one, or of its content."""
        file_id, rest = _below(exchange, "/v1/files/")
        file = await self._archive.call(Ledger.file, exchange.caller.tenant, file_id)
        if rest == "content":
            async with aclosing(self._archive.content(file.id)) as parts:
                await exchange.send_parts("application/octet-stream", file.bytes, parts)
        elif rest:
            raise NotFound(f"a file has no {rest[:40]!a}")
        else:
            await exchange.send(json_answer(file))

    async def delete(self, exchange: Exchange) -> None:
        """DELETE."""
        file_id, rest = _below(exchange, "/v1/files/")
        if rest:
            raise NotFound("only a whole file can be deleted")
        await self._archive.remove(exchange.caller.tenant, file_id)
        await exchange.send(json_answer(FileDeleted(file_id)))


class BatchRequest(msgspec.Struct):
    """The body that creates a batch."""

    input_file_id: str
    endpoint: str
    completion_window: Literal["24h"]
    metadata: (
        dict[
            Annotated[str, msgspec.Meta(max_length=64)],
            Annotated[str, msgspec.Meta(max_length=_METADATA_CHARS)],
        ]
        | None
    ) = None


class BatchRoutes:
    """`/v1/batches`."""

    def __init__(self, service: BatchService, max_field_bytes: int) -> None:
        self._archive = service.archive
        self._runner = service.runner
        self._decoder = BodyDecoder(
            BatchRequest,
            FieldPolicy(frozenset(), {"output_expires_after": ()}),
            max_field_bytes=max_field_bytes,
        )

    async def create(self, exchange: Exchange) -> None:
        """POST."""
        request = self._decoder.decode(await exchange.read_body())
        if request.endpoint not in ENDPOINTS:
            raise InvalidRequest(
                "batches do not go there", param="endpoint", fix=f"Use {' or '.join(ENDPOINTS)}."
            )
        if request.metadata is not None and len(request.metadata) > _METADATA_ENTRIES:
            raise InvalidRequest(
                f"metadata has more than {_METADATA_ENTRIES} entries", param="metadata"
            )
        caller, now = exchange.caller, int(time.time())
        batch = BatchObject(
            id=new_id("batch_"),
            endpoint=request.endpoint,
            input_file_id=request.input_file_id,
            completion_window=request.completion_window,
            created_at=now,
            expires_at=now + _WINDOW_S,
            metadata=request.metadata,
        )
        models = None if caller.models is None else tuple(sorted(caller.models))
        record = BatchRecord(batch=batch, tenant=caller.tenant, plan=caller.plan, models=models)
        await self._archive.call(Ledger.add_batch, record, self._archive.config.open_batches)
        self._runner.look()
        await exchange.send(json_answer(batch))

    async def list(self, exchange: Exchange) -> None:
        """GET."""
        page = _page(exchange)
        found = await self._archive.call(Ledger.batches, exchange.caller.tenant, page)
        await exchange.send(json_answer(_list(found, page)))

    async def get(self, exchange: Exchange) -> None:
        """GET of one."""
        batch_id, rest = _below(exchange, "/v1/batches/")
        if rest:
            raise NotFound(f"a batch has no {rest[:40]!a}")
        batch = await self._archive.call(Ledger.batch, exchange.caller.tenant, batch_id)
        await exchange.send(json_answer(batch))

    async def cancel(self, exchange: Exchange) -> None:
        """POST to `<id>/cancel`."""
        batch_id, rest = _below(exchange, "/v1/batches/")
        if rest != "cancel":
            raise NotFound("a batch can be cancelled, and nothing else", fix="Use <id>/cancel.")
        now = int(time.time())
        batch = await self._archive.call(Ledger.cancel, exchange.caller.tenant, batch_id, now)
        self._runner.look()
        await exchange.send(json_answer(batch))


def _refuse_foreign_pages(exchange: Exchange) -> None:
    """Browsers ask before they send JSON to other origins (CORS), but forms they just send."""
    is_allowed = any(name == "access-control-allow-origin" for name, _ in exchange.answer_headers)
    if exchange.header("origin") is not None and not is_allowed:
        raise Forbidden(
            "pages of this origin may not send files here",
            fix="The server's operator can name it in gateway.cors.origins.",
        )


def _checked_name(form: Form) -> str:
    """The file's, of a form that is as it should be."""
    unknown = form.fields.keys() - {"purpose"}
    if unknown:
        name = min(unknown)
        raise UnsupportedFeature(f"{name[:40]!a} is not supported by this server", param="form")
    if form.fields.get("purpose") != "batch":
        raise InvalidRequest("purpose must be batch", param="purpose")
    if form.file_name is None:
        raise InvalidRequest("the form has no file", param="file")
    if form.file_bytes == 0:
        raise InvalidRequest("the file is empty", param="file")
    return _BAD_NAME.sub("?", form.file_name)[:255]


def _below(exchange: Exchange, prefix: str) -> tuple[str, str]:
    """Id, and what follows it."""
    name, _, rest = exchange.path.removeprefix(prefix).partition("/")
    return name, rest


def _page(exchange: Exchange, more: Set[str] = frozenset()) -> Page:
    query = exchange.query
    if unknown := query.keys() - {"limit", "after", "order"} - more:
        raise InvalidRequest(f"{min(unknown)[:40]!a} is not a known parameter", param="query")
    limit, order = query.get("limit", str(_PAGE)), query.get("order", "desc")
    if re.fullmatch(r"[0-9]{1,5}", limit) is None or int(limit) < 1:
        raise InvalidRequest("limit must be a number from 1", param="limit")
    if order not in ("asc", "desc"):
        raise InvalidRequest("order must be asc or desc", param="order")
    return Page(
        limit=min(int(limit), _MAX_PAGE), after=query.get("after"), is_ascending=order == "asc"
    )


def _list(found: list[FileObject] | list[BatchObject], page: Page) -> ObjectList:
    data = found[: page.limit]
    return ObjectList(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=len(found) > page.limit,
    )

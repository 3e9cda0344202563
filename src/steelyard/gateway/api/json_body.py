"""Decodes a request body: strict JSON, then a schema; errors name the place and the reason.

Stricter than most parsers on purpose: duplicate keys, NaN, lone surrogates and trailing bytes are
refused, so that no two readers of a request can understand it differently. Only values that the
schema knows are built, so a body cannot unfold into more memory than it has bytes.
"""

import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from steelyard.contract.errors import InvalidRequest
from steelyard.gateway.api.fields import FieldPolicy, suggest

__all__ = ["BodyDecoder"]

SchemaT = TypeVar("SchemaT", bound=msgspec.Struct)

_BULKY = frozenset({"messages", "prompt", "tokens"})
"""What a body may be large for."""


class _Name(str):
    """A key of the body's outermost object, as it stands there."""

    __slots__ = ()


class BodyDecoder(Generic[SchemaT]):
    """Decodes bodies of one schema. Not for concurrent use by several threads.

    Parameters other than the prompt may have `max_field_bytes` of JSON: a megabyte of
    `logit_bias` is refused by its length, before a hundred thousand entries are built.
    """

    def __init__(self, schema: type[SchemaT], policy: FieldPolicy, *, max_field_bytes: int) -> None:
        self._policy = policy
        self._max_field_bytes = max_field_bytes
        self._known = frozenset(f.encode_name for f in msgspec.structs.fields(schema))
        self._names: list[str] = []
        # msgspec keeps the last of equal keys without a word; the hook sees all of them.
        self._outline = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=self._note_name)
        self._decoder = msgspec.json.Decoder(schema)

    def decode(self, body: bytes) -> SchemaT:
        """Raises `InvalidRequest` or `UnsupportedFeature` with the parameter's path."""
        if not body:
            raise InvalidRequest("the body is empty", fix="Send a JSON object.")
        try:
            self._names.clear()
            outline = self._outline.decode(body)
            if len(outline) != len(self._names):
                raise InvalidRequest(
                    "the key occurs twice", param=_repeated(self._names), fix="Send it once."
                )
            if len(body) > self._max_field_bytes:
                self._check_sizes(outline)
            foreign = outline.keys() - self._known
            if foreign:
                self._policy.check({str(n): bytes(outline[n]) for n in foreign}, self._known)
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise _invalid(str(error), self._known) from None
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"the body is not valid JSON: {error}") from None
        except UnicodeDecodeError:
            raise InvalidRequest("the body is not valid UTF-8") from None
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None

    def _check_sizes(self, outline: Mapping[_Name, msgspec.Raw]) -> None:
        for name in outline.keys() & self._known - _BULKY:
            size = len(memoryview(outline[name]))
            if size > self._max_field_bytes:
                raise InvalidRequest(
                    f"{name} has {size} bytes, the limit is {self._max_field_bytes}",
                    param=str(name),
                )

    def _note_name(self, _: type, name: Any) -> _Name:
        self._names.append(name)
        return _Name(name)


def _invalid(text: str, known: frozenset[str]) -> InvalidRequest:
    """Turn msgspec's message, "reason - at `$.path`", into ours."""
    reason, _, where = text.partition(" - at ")
    path = where.strip("`").removeprefix("$").removeprefix(".") or None
    if missing := re.fullmatch(r"Object missing required field `(.+)`", reason):
        path = f"{path}.{missing[1]}" if path else missing[1]
        return InvalidRequest(f"{path} is required", param=path)
    if unknown := re.fullmatch(r"Object contains unknown field `(.+)`", reason):
        inner = f"{path}.{unknown[1]}" if path else unknown[1]
        return InvalidRequest(
            f"{inner} is not a known parameter", param=inner, fix=suggest(unknown[1], known)
        )
    name = path or "the body"
    reason = _plain(reason)
    return InvalidRequest(f"{name}: {reason}", param=path)


def _plain(reason: str) -> str:
    """`Expected `int | null`, got `str`` → expected int, got str."""
    reason = reason.replace("`", "").replace(" | null", "")
    return reason[:1].lower() + reason[1:]


def _repeated(names: list[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name occurs twice")

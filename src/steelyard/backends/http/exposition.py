"""Reads a few values off a page of Prometheus metrics, whatever else is on it.

Pages of engines hold thousands of lines, nearly all of them buckets: only the series that are asked
for are looked at.
"""

import contextlib
import re
from collections.abc import Iterator

__all__ = ["Exposition"]

_LINE = re.compile(rb"^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)", re.MULTILINE)
_LABEL = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')


class Exposition:
    """One page."""

    def __init__(self, page: bytes) -> None:
        self._page = page

    def total(self, name: str) -> float:
        """The sum over all series of this name; 0 when there is none."""
        return sum(value for _, value in self._series(name))

    def labels(self, name: str) -> dict[str, str]:
        """Of the first series of this name; empty when there is none."""
        for labels, _ in self._series(name):
            pairs = _LABEL.findall(labels)
            return {key.decode(): value.decode(errors="replace") for key, value in pairs}
        return {}

    def _series(self, name: str) -> Iterator[tuple[bytes, float]]:
        wanted = name.encode()
        at = 0
        while (at := self._page.find(wanted, at)) >= 0:
            is_line_start = at == 0 or self._page[at - 1] == 0x0A
            match = _LINE.match(self._page, at) if is_line_start else None
            if match is not None and match[1] == wanted:
                with contextlib.suppress(ValueError):  # no number: a page of another kind
                    yield match[2] or b"", float(match[3])
            at += len(wanted)

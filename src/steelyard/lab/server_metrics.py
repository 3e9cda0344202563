"""What a server's own metrics said during a run: watched while it runs, summed up afterwards.

Understands Prometheus' text format and keeps what Steelyard, vLLM, SGLang and llama.cpp's server
publish; `explain` gives it a meaning. A server without metrics is no error.
"""

import asyncio
import http.client
import re
import time
import urllib.request
import zlib
from collections.abc import Mapping, Sequence

import msgspec

__all__ = ["GaugeSeen", "HistogramGrowth", "MetricsWatch", "ServerMetrics", "sum_up"]

_EVERY_S = 0.5
_TIMEOUT_S = 2.0
_MOST_PAGES = 20_000
_MOST_READ = 300
"""Of the measured part, evenly."""
_FAMILIES = re.compile(r"(?:steelyard_|vllm:|sglang:|llamacpp:)")
_SAMPLE = re.compile(r"([\w:]+)(?:\{[^}]*\})?\s+([-+.\deE]+|NaN|[-+]?Inf)(?:\s+\d+)?")
_SHARE = re.compile(r"perc$|ratio$|usage$|_rate$")
"""Gauges of which the largest of several engines counts; all others are added."""


class GaugeSeen(msgspec.Struct, frozen=True):
    """A gauge over the run."""

    mean: float
    maximum: float


class HistogramGrowth(msgspec.Struct, frozen=True):
    """What a histogram counted during the run."""

    count: float
    total: float

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count > 0 else None


class ServerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """By the servers' own names; labels are summed up."""

    scrapes: int
    """That gauges are made of."""
    gauges: dict[str, GaugeSeen]
    counters: dict[str, float]
    """Growth from before the first request to after the last answer."""
    histograms: dict[str, HistogramGrowth]


class MetricsWatch:
    """Reads a server's /metrics twice a second until cancelled. Never raises."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """`url`: of the server, without `/v1`."""
        self._request = urllib.request.Request(f"{url}/metrics", headers=dict(headers))  # noqa: S310 - http or https, as the target was read
        self._pages: list[tuple[float, bytes]] = []
        """Compressed, with the monotonic time of each."""

    async def run(self) -> None:
        """Pages are kept as they are and read later: reading takes time that clients need."""
        while await self._scrape() and len(self._pages) < _MOST_PAGES:
            await asyncio.sleep(_EVERY_S)

    async def result(self, begin_s: float, end_s: float) -> ServerMetrics | None:
        """After the run. Gauges are those of its measured part, [begin_s, end_s) of the monotonic
        clock. None: the server shows no metrics that we know."""
        if not self._pages:
            return None
        await self._scrape()
        inside = [page for at_s, page in self._pages if begin_s <= at_s < end_s]
        chosen = inside[:: len(inside) // _MOST_READ + 1]
        ends = [self._pages[0][1], self._pages[-1][1]]
        return sum_up(*([zlib.decompress(page) for page in pages] for pages in (ends, chosen)))

    async def _scrape(self) -> bool:
        page = await asyncio.to_thread(self._fetch)
        if page is not None:
            self._pages.append((time.monotonic(), page))
        # One that answered before may be too busy to answer now.
        return page is not None or bool(self._pages)

    def _fetch(self) -> bytes | None:
        try:
            with urllib.request.urlopen(self._request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                return zlib.compress(answer.read(), level=1)
        except (OSError, http.client.HTTPException, ValueError):
            return None


def sum_up(pages: Sequence[bytes], inside: Sequence[bytes] = ()) -> ServerMetrics | None:
    """Of pages in the order of time; `inside` are those whose gauges count (none: all).

    None when they hold nothing that we know.
    """
    if not pages:
        return None
    (first, kinds), (last, later) = _read_page(pages[0]), _read_page(pages[-1])
    kinds |= later
    levels = [_read_page(page)[0] for page in inside or pages]
    if not (first or last):
        return None
    gauges: dict[str, GaugeSeen] = {}
    for name in (name for name, kind in kinds.items() if kind == "gauge"):
        seen = [samples[name] for samples in levels if name in samples]
        if seen:
            gauges[name] = GaugeSeen(sum(seen) / len(seen), max(seen))
    return ServerMetrics(
        scrapes=len(inside or pages),
        gauges=gauges,
        counters={
            name: _growth(first, last, name) for name, kind in kinds.items() if kind == "counter"
        },
        histograms={
            name: HistogramGrowth(
                _growth(first, last, f"{name}_count"), _growth(first, last, f"{name}_sum")
            )
            for name, kind in kinds.items()
            if kind == "histogram"
        },
    )


def _growth(first: Mapping[str, float], last: Mapping[str, float], name: str) -> float:
    """A counter that went back belongs to a server that was started anew: it counts from 0."""
    grown = last.get(name, 0.0) - first.get(name, 0.0)
    return grown if grown >= 0 else last.get(name, 0.0)


def _read_page(page: bytes) -> tuple[dict[str, float], dict[str, str]]:
    """Samples summed over labels, and the kinds of metrics."""
    samples: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in page.decode("utf-8", "replace").splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = (*line.split(), "", "")[:4]
            if _FAMILIES.match(name):
                kinds[name] = kind
            continue
        if not _FAMILIES.match(line) or "_bucket{" in line:
            continue
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name, value = match[1], float(match[2])
        if _SHARE.search(name):
            samples[name] = max(samples.get(name, 0.0), value)
        else:
            samples[name] = samples.get(name, 0.0) + value
    return samples, kinds

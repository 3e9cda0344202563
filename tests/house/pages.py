"""Markdown pages of the project, cut into what the documentation tests look at."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from .source_tree import ROOT, files

_FENCE = re.compile(r"^```([\w-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^(#{1,6}) +(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file."""

    path: Path
    text: str

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def prose(self) -> str:
        """Without code blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self, *languages: str) -> list[str]:
        """Code blocks in one of the languages."""
        return [body for language, body in _FENCE.findall(self.text) if language in languages]

    @property
    def spans(self) -> list[str]:
        """Code within sentences and tables."""
        return _SPAN.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        """What links into this page may name, as forges make them from headings."""
        titles = (title for _, title in _HEADING.findall(self.prose))
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    @property
    def links(self) -> list[str]:
        """Targets of links that stay within the project."""
        targets = re.findall(r"\]\(([^)\s]+)\)", self.prose)
        return [target for target in targets if not re.match(r"[a-z]+:", target)]

    def sections(self, pattern: str) -> list[str]:
        """Bodies of the sections whose title matches, each up to the next heading of its rank."""
        found = []
        headings = list(_HEADING.finditer(self.prose))
        for at, heading in enumerate(headings):
            if re.search(pattern, heading[2]):
                rank = len(heading[1])
                ends = (h.start() for h in headings[at + 1 :] if len(h[1]) <= rank)
                found.append(self.prose[heading.end() : next(ends, len(self.prose))])
        return found


@functools.cache
def pages() -> tuple[Page, ...]:
    """All of them."""
    return tuple(Page(path, path.read_text()) for path in files(".md"))

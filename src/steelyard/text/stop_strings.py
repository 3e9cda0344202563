"""Finds stop strings in streamed text, across the borders of its pieces.

One idea (Aho and Corasick, 1975): an automaton over all stop strings keeps, after each character,
the longest end of the text that begins some stop string. That end is exactly what must be held
back; the work per character does not grow with the number of stop strings.

Which stop string wins does not depend on how the text was cut: the one that is complete first; of
several that end at the same character, the longest. Stop *tokens* are the engine's business.
"""

from collections import deque
from collections.abc import Sequence

__all__ = ["StopMatcher"]


class StopMatcher:
    """Follows one stream. Memory is bounded by the longest stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Empty stop strings match nothing and are ignored."""
        self._automaton = _Automaton([stop for stop in stops if stop])
        self._state = 0
        self._held = ""
        self._stop: str | None = None

    @property
    def stop(self) -> str | None:
        """The stop string that was found; None while there is none."""
        return self._stop

    def push(self, text: str) -> str:
        """Text that is certain to come before any stop string. Empty once one was found."""
        if self._stop is not None:
            return ""
        if not self._automaton.is_useful:
            return text
        state, step = self._state, self._automaton.step
        for at, letter in enumerate(text):
            state = step(state, letter)
            stop = self._automaton.found[state]
            if stop is not None:
                return self._end_at(self._held + text[: at + 1], stop)
        self._state = state
        pending = self._held + text
        kept = self._automaton.depth[state]
        certain, self._held = pending[: len(pending) - kept], pending[len(pending) - kept :]
        return certain

    def flush(self) -> str:
        """What was held back, now that no more text comes."""
        held, self._held = self._held, ""
        return held

    def _end_at(self, pending: str, stop: str) -> str:
        self._stop = stop
        self._held = ""
        return pending[: len(pending) - len(stop)]


class _Automaton:
    """Nodes are beginnings of stop strings; node 0 is the empty one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.is_useful = bool(stops)
        self.depth = [0]
        """Length of the node's text: how much must be held back."""
        self.found: list[str | None] = [None]
        """The longest stop string that the node's text ends with."""
        self._children: list[dict[str, int]] = [{}]
        self._fallback = [0]
        """The node of the longest proper end of this node's text that is a node, too."""
        for stop in stops:
            self._insert(stop)
        self._link()

    def step(self, node: int, letter: str) -> int:
        """The node after one more letter."""
        children = self._children
        while (following := children[node].get(letter)) is None:
            if node == 0:
                return 0
            node = self._fallback[node]
        return following

    def _insert(self, stop: str) -> None:
        node = 0
        for letter in stop:
            following = self._children[node].get(letter)
            if following is None:
                following = len(self._children)
                self._children[node][letter] = following
                self._children.append({})
                self._fallback.append(0)
                self.depth.append(self.depth[node] + 1)
                self.found.append(None)
            node = following
        self.found[node] = stop

    def _link(self) -> None:
        """Set fallbacks, shorter texts first, so that those a node refers to are final."""
        pending = deque(self._children[0].values())
        while pending:
            node = pending.popleft()
            for letter, child in self._children[node].items():
                self._fallback[child] = self.step(self._fallback[node], letter)
                if self.found[child] is None:
                    self.found[child] = self.found[self._fallback[child]]
                pending.append(child)

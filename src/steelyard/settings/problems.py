"""What can be wrong with a deployment, in words: key path, reason, where it came from, fix.

Says nothing about *when* something is wrong: `resolve` and `rules` decide that.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from steelyard.contract.errors import SettingsError
from steelyard.settings.keys import ANY, Path, dotted, find_key, keys, pattern, sections

__all__ = ["Problem", "as_error", "printable", "shown", "unavailable_value", "unknown_key"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that must change before the deployment can work."""

    path: str
    """Dotted key; the file's name when the file itself is at fault."""
    reason: str
    fix: str
    where: str = ""
    """The file and line, variable or flag that said so; empty when it is a default."""

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"

    @property
    def detail(self) -> str:
        """Everything but the key."""
        where = f" ({self.where})" if self.where else ""
        return f"{self.reason}{where}. Fix: {self.fix}"


def as_error(problems: Sequence[Problem]) -> SettingsError:
    """All problems as one exception; `param` names the key when there is a single problem."""
    assert problems, "no problem, no error"
    if len(problems) == 1:
        (only,) = problems
        where = f" ({only.where})" if only.where else ""
        return SettingsError(f"{only.reason}{where}.", param=only.path, fix=only.fix)
    lines = "".join(f"\n  {problem}" for problem in problems)
    return SettingsError(f"{len(problems)} settings cannot work:{lines}")


def unknown_key(path: Path, where: str, spell: Callable[[Path], str] = dotted) -> Problem:
    """`path` is no key: it may be planned, misspelt, misplaced or made up.

    `spell` writes a known key as `where` would, such as a variable's name.
    """
    name = printable(path)
    for planned, (reason, fix) in _UNAVAILABLE_KEYS.items():
        if path[: len(planned)] == planned:
            return Problem(name, f"is not available in this version: {reason}", fix, where)
    return Problem(name, "is not a known key", _suggestion(path, spell), where)


def printable(path: Path) -> str:
    """A path that may be no key, fit for a terminal."""
    return _shortened("".join(c if c.isprintable() else "?" for c in dotted(path)), limit=80)


def unavailable_value(path: Path, value: object) -> tuple[str, str] | None:
    """Reason and fix when `value` is planned for the key but not built; None otherwise."""
    if not isinstance(value, str):
        return None
    return _UNAVAILABLE_VALUES.get(path, {}).get(value)


def shown(path: Path, value: object) -> str:
    """`value` for a message: short, one line, and never a secret."""
    if _SECRET_NAME.search(dotted(path)):
        return "the value"
    if isinstance(value, str):
        return "the value" if _SECRET_VALUE.search(value) else _shortened(repr(value))
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return _shortened(str(value))
    return "a list" if isinstance(value, list | tuple) else "a section"


def _shortened(text: str, limit: int = 48) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _suggestion(path: Path, spell: Callable[[Path], str]) -> str:
    parent, name = path[:-1], path[-1]
    split = (*parent, *name.split("."))
    if "." in name and find_key(split) is not None:
        return f"write it as nested sections: {': {'.join(split)}: …{'}' * (len(split) - 1)}"
    if close := _closest(pattern(path)):
        meant = (spell(_with_names_of(path, known)) for known in close)
        return f"did you mean {' or '.join(meant)}?"
    siblings = _children(pattern(path)[:-1])
    if not siblings:
        return "remove it; `steelyard config schema` lists all keys"
    return f"remove it; the keys of {dotted(parent) or 'the file'} are {', '.join(siblings)}"


def _with_names_of(path: Path, known: Path) -> Path:
    """`known` with the names that `path` has in the place of `ANY`."""
    named = zip(known, (*path, *known[len(path) :]), strict=False)
    return tuple(said if part == ANY else part for part, said in named)


def _closest(path: Path) -> list[Path]:
    """Keys that may have been meant; empty when none is near."""
    parent, name = path[:-1], path[-1].lower().replace("-", "_")
    if len(name) > 80:
        return []  # no key is that long, and comparing takes quadratic time
    everywhere = [*keys(), *sections()]
    flat = {"_".join(known): known for known in everywhere}
    whole = "_".join((*parent, name))
    if whole in flat:
        return [flat[whole]]
    if near := difflib.get_close_matches(name, _children(parent), n=1, cutoff=0.7):
        return [(*parent, near[0])]
    if same := [known for known in everywhere if known[-1] == name]:
        return same[:3]
    return [flat[near] for near in difflib.get_close_matches(whole, flat, n=1, cutoff=0.85)]


def _children(parent: Path) -> list[str]:
    depth = len(parent)
    below: Iterable[Path] = (path for path in [*keys(), *sections()] if path[:depth] == parent)
    return list(dict.fromkeys(path[depth] for path in below if len(path) > depth))


_SECRET_NAME = re.compile(
    r"(^|[._-])(secrets?|token|password|passwd|passphrase|credentials?|api_?key|key|authorization)"
    r"($|[._-])",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"\b(sk|hf|pk|ghp)[-_]\w|bearer\s|://[^/\s]*@|-----BEGIN", re.IGNORECASE)

_UNAVAILABLE_KEYS: dict[Path, tuple[str, str]] = {
    ("slo",): (
        "nothing holds a latency target yet",
        "remove it; batching.step_stretch bounds how far a long prompt slows running streams",
    ),
    ("kv_cache", "precision"): (
        "the whole cache has one precision",
        "remove it; kv_cache.dtype sets that precision",
    ),
    ("kv_cache", "warmup"): ("the cache starts empty", "remove it"),
    ("kv_cache", "offload"): ("the cache lives on the model's device alone", "remove it"),
}

_USE_API_KEYS = ("is not what it is called", "use api_keys")
_USE_JWT = ("is not what it is called", "use jwt, for tokens of an identity provider")
_UNAVAILABLE_VALUES: dict[Path, dict[str, tuple[str, str]]] = {
    ("gateway", "auth", "mode"): dict.fromkeys(("api_key", "key", "keys"), _USE_API_KEYS)
    | dict.fromkeys(("bearer", "oauth", "oauth2", "oidc", "token"), _USE_JWT),
}

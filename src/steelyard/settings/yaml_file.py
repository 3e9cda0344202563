"""Reads a deployment file: YAML, without tags, aliases, duplicate keys or surprises of size.

Yields entries with line numbers; knows no keys. The safe loader builds plain values only, so a
file can never run code.
"""

import re
from pathlib import Path as FilePath

import yaml

from steelyard.settings.keys import Path, pattern, sections
from steelyard.settings.layers import Entry, Layer, Source, SourceKind
from steelyard.settings.problems import Problem, printable

__all__ = ["MAX_FILE_BYTES", "from_file"]

MAX_FILE_BYTES = 256 * 1024
"""A deployment file is some hundred lines; anything larger is another file by mistake."""


def from_file(file: FilePath) -> Layer:
    """Everything that `file` says; a file that cannot be read is a problem, not an exception."""
    layer = Layer()
    try:
        text = _read(file)
        root = _compose(text)
        if root is not None:
            reader = _Reader(str(file), layer)
            reader.read_root(root)
    except _Unreadable as error:
        where = f"{file}:{error.line}" if error.line else ""
        layer.problems.append(Problem(str(file), error.reason, error.fix, where))
    return layer


_NULL = "tag:yaml.org,2002:null"


class _Unreadable(Exception):
    """The file as a whole says nothing we can use."""

    def __init__(self, reason: str, fix: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        self.line = line


class _Loader(yaml.SafeLoader):
    """The safe loader without aliases, and with the scalar types of YAML 1.2.

    A few aliases can mean gigabytes. YAML 1.1, PyYAML's own, takes `no` for false, `80:00` for
    4800 and `010` for 8, which nobody expects of a file that holds names, hosts and ports.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise _Unreadable("uses a YAML alias (*name)", "write the value out", line)
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {}
for _tag, _first, _pattern in (
    ("null", "~nN", r"~|null|Null|NULL"),
    ("bool", "tTfF", r"true|True|TRUE|false|False|FALSE"),
    ("int", "-+0123456789", r"[-+]?(0|[1-9][0-9]*)"),
    ("float", "-+.0123456789", r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?"),
    ("float", "-+.", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first)
    )
_Loader.add_implicit_resolver(_NULL, re.compile(r"$"), [""])


class _Reader:
    """Walks the nodes of one file and collects entries."""

    def __init__(self, name: str, layer: Layer) -> None:
        self._name = name
        self._layer = layer

    def read_root(self, root: yaml.Node) -> None:
        if root.tag == _NULL:
            return
        if not isinstance(root, yaml.MappingNode):
            raise _Unreadable(
                "is not a list of keys with values", "begin with a line such as model: name", 1
            )
        self._read_section(root, ())

    def _read_section(self, node: yaml.MappingNode, at: Path) -> None:
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            name = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
            path = (*at, name)
            if name in lines:
                self._refuse(path, line, f"is already set in line {lines[name]}", "keep one")
                continue
            lines[name] = line
            self._read_value(path, value_node, line)

    def _read_value(self, path: Path, node: yaml.Node, line: int) -> None:
        is_section = pattern(path) in sections()
        if is_section and isinstance(node, yaml.MappingNode):
            self._read_section(node, path)
            return
        if is_section and node.tag == _NULL:
            return  # a section whose keys are all commented out
        try:
            value = _plain_value(node)
        except (yaml.YAMLError, ValueError):
            self._refuse(path, line, "has a value that YAML cannot read", "write a plain value")
            return
        source = Source(SourceKind.FILE, f"{self._name}:{line}")
        self._layer.entries.append(Entry(path, value, source))

    def _refuse(self, path: Path, line: int, reason: str, fix: str) -> None:
        problem = Problem(printable(path), reason, fix, f"{self._name}:{line}")
        self._layer.problems.append(problem)


def _read(file: FilePath) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _Unreadable("does not exist", "correct the path") from None
    except OSError as error:
        reason = f"cannot be read ({error.strerror or error})"
        raise _Unreadable(reason, "make it a readable file") from None
    if len(data) > MAX_FILE_BYTES:
        raise _Unreadable(
            f"is larger than {MAX_FILE_BYTES // 1024} KiB, so it is no deployment file",
            "correct the path",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _Unreadable("is not UTF-8", "save it as UTF-8", line) from None


def _compose(text: str) -> yaml.Node | None:
    """The tree of nodes; None for a file without content. Messages never quote the file."""
    try:
        return _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = f"is not YAML: {error.problem or error.context}"
        line = mark.line + 1 if mark else 0
        raise _Unreadable(reason, "correct that line", line) from None
    except yaml.YAMLError:
        raise _Unreadable("holds characters YAML does not allow", "save it as text") from None
    except RecursionError:
        raise _Unreadable("is nested too deeply", "see `steelyard config schema`") from None


def _plain_value(node: yaml.Node) -> object:
    """Lists and scalars as Python values. Mappings stay empty: no key holds one."""
    if isinstance(node, yaml.MappingNode):
        return {}
    if isinstance(node, yaml.SequenceNode):
        return [_plain_value(entry) for entry in node.value]
    return _Loader("").construct_object(node)

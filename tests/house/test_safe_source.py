"""The source never runs what it reads, nor asks the environment behind the settings' back."""

import ast
from collections.abc import Iterator

from .source_tree import modules

_IMPORTS = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
_CALLS = {
    "__import__",
    "compile",
    "eval",
    "exec",
    "os.popen",
    "os.system",
    "torch.hub.load",
    "torch.load",
    "yaml.full_load",
    "yaml.load",
    "yaml.unsafe_load",
}
_KEYWORDS = {"allow_pickle", "shell", "trust_remote_code"}
"""Dangerous whenever they are not switched off."""

_ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"}
_ENVIRONMENT_ALLOWED = {
    "steelyard.settings.paths": "reads it for everybody",
    "steelyard.engine.process": "tells numeric libraries their thread count before they load",
    "steelyard.models.native.build": "lets torch find the build tool beside the interpreter",
}


def test_nothing_that_is_read_can_become_code() -> None:
    found = [
        f"{module.where}:{node.lineno}: {what}"
        for module in modules()
        for node, what in _dangers(module.tree)
    ]
    assert not found


def test_only_settings_read_the_environment() -> None:
    uses = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in _ENVIRONMENT)
        or (isinstance(node, ast.ImportFrom) and _imported(node) & _ENVIRONMENT)
    }
    assert uses == _ENVIRONMENT_ALLOWED.keys()


def test_dangers_are_recognised() -> None:
    for line in (
        "import pickle",
        "from marshal import loads",
        "eval(text)",
        "yaml.load(text)",
        "subprocess.run(text, shell=True)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
    ):
        assert list(_dangers(ast.parse(line))), line
    assert not list(_dangers(ast.parse("run(text, shell=False); re.compile(text)")))


def _dangers(tree: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            roots = {name.partition(".")[0] for name in _imported(node)}
            if found := roots & _IMPORTS:
                yield node, f"imports {', '.join(found)}"
        elif isinstance(node, ast.Call):
            if (name := ast.unparse(node.func)) in _CALLS:
                yield node, f"calls {name}"
            for keyword in node.keywords:
                if keyword.arg in _KEYWORDS and ast.unparse(keyword.value) != "False":
                    yield node, f"gives {keyword.arg}"


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {f"{node.module}.{alias.name}" for alias in node.names}

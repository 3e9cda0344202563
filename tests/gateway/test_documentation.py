"""What the door understands and answers is what `docs/api.md` says."""

import re
from pathlib import Path

import pytest

from steelyard.contract.errors import error_classes
from steelyard.gateway.api.chat import ChatRequest
from steelyard.gateway.api.completions import CompletionRequest
from steelyard.gateway.api.fields import CHAT_POLICY, COMPLETION_POLICY
from steelyard.gateway.errors import statuses

from .doors import Door
from .wire import get

DOC = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


def section(title: str) -> str:
    return DOC.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def named(text: str) -> set[str]:
    """Code words at the beginning of table rows."""
    return set(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("schema", "title"),
    [(ChatRequest, "Chat completions"), (CompletionRequest, "Text completions")],
)
def test_every_parameter_is_documented(schema: type, title: str) -> None:
    documented = named(section("Parameters of both completions")) | named(section(title))
    assert documented == set(schema.__struct_fields__)


def test_every_refused_and_ignored_parameter_is_documented() -> None:
    documented = set(re.findall(r"`(\w+)`", section("Parameters that are not used")))
    refused = CHAT_POLICY.unsupported.keys() | COMPLETION_POLICY.unsupported.keys()
    assert documented == refused | CHAT_POLICY.ignored


def test_every_error_code_is_documented_with_its_status() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| (.+) \|$", section("Errors"), re.MULTILINE)
    documented = {code: status for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    for cls in error_classes().values():
        assert str(statuses()[cls]) in documented[cls.code], cls.code


def test_every_route_is_documented_and_answers(door: Door) -> None:
    documented = named(section("Routes"))
    assert documented == {route.template for route in door.gateway.routes}
    for route in documented:
        assert get(door, route.replace("*", "fake"), method="OPTIONS").status == 204

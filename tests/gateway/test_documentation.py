"""What the door understands and answers is what `docs/api.md` says."""

import re
from pathlib import Path
from typing import Any

import pytest

from steelyard.backends.fake import FakeEngine
from steelyard.cli.doors import make_admin
from steelyard.contract import VirtualClock
from steelyard.contract.errors import error_classes
from steelyard.gateway.admin import Desk
from steelyard.gateway.api.chat import ChatRequest
from steelyard.gateway.api.completions import CompletionRequest
from steelyard.gateway.api.fields import CHAT_POLICY, COMPLETION_POLICY
from steelyard.gateway.errors import statuses
from steelyard.gateway.metrics_page import OwnMetrics
from steelyard.gateway.models import ModelTable, ServedModel
from steelyard.gateway.routes import About
from steelyard.settings import Deployment
from steelyard.telemetry import Metrics

from .byte_text import ByteText
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


async def test_every_route_of_administration_is_documented() -> None:
    deployment = Deployment.model_validate({"gateway": {"admin": {"port": 0}}})

    def nobody(*_: Any) -> Any:
        raise AssertionError("nobody asks")

    metrics = Metrics()
    table = ModelTable([ServedModel("m", FakeEngine(), ByteText(), 0)])
    page = OwnMetrics(table, metrics, VirtualClock(), 1.0)
    admin = make_admin(
        deployment,
        about=About(table, page, VirtualClock(), 1.0),
        desk=Desk(nobody, nobody),
        guard=nobody,
        metrics=metrics,
    )
    assert admin is not None
    assert named(section("Administration")) == {route.template for route in admin.routes}

"""No setting of the door is read by nobody: what a file says about access is never just ignored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.door import gateway_config
from steelyard.settings import Deployment
from steelyard.settings._section import Section
from steelyard.settings.keys import ANY, keys

ELSEWHERE = {
    "gateway.insecure": "a rule of the settings",
    "gateway.workers": "the service",
    "gateway.admin.host": "the service",
}
"""Keys that others read."""


class Watched:
    """A section that notes which of its keys are read."""

    def __init__(self, section: Section, path: str, read: set[str]) -> None:
        self._of = section, path, read

    def __getattr__(self, name: str) -> Any:
        section, path, read = self._of
        value = getattr(section, name)
        here = f"{path}.{name}".removeprefix(".")
        read.add(here)
        return Watched(value, here, read) if isinstance(value, Section) else value


def door_keys() -> Iterator[str]:
    for key in keys().values():
        if key.path[0] in ("gateway", "tenants") and ANY not in key.path:
            yield key.name


@pytest.fixture
def everything(tmp_path: Path) -> Deployment:
    """A deployment in which every part of the door is in use."""
    secret = tmp_path / "secret"
    secret.write_text("short")
    jwt = {"issuer": "https://idp", "audience": ["us"], "jwks_url": "https://idp/keys"}
    return Deployment.model_validate(
        {
            "gateway": {
                "auth": {"mode": "jwt", "jwt": jwt},
                "batches": {"folder": str(tmp_path / "batches")},
            },
            "tenants": {
                "default": {"priority": "low"},
                "plans": {"gold": {"max_tokens": 8}},
                "named": {"team-a": {"max_tokens": 7}},
                "redis": {"url": "redis://127.0.0.1:1/0", "password_file": str(secret)},
            },
        }
    )


def test_every_setting_of_the_door_is_read(everything: Deployment) -> None:
    read: set[str] = set()
    watched: Any = Watched(everything, "", read)
    gateway_config(watched)
    assert set(door_keys()) - read == ELSEWHERE.keys()


def test_values_arrive_where_they_are_obeyed(everything: Deployment) -> None:
    config = gateway_config(everything)
    assert config.auth.mode == "jwt"
    assert config.auth.jwt is not None
    assert config.auth.jwt.token_types == {"at+jwt", "jwt"}
    assert config.tenants.redis is not None
    assert config.tenants.redis.password == "short"
    assert config.tenants.rules("team-a", "gold").max_tokens == 7
    assert config.tenants.rules("team-b", "gold").max_tokens == 8
    assert config.tenants.rules("team-b", "gold").priority_class == "low"
    assert config.tenants.rules("team-b", None).max_tokens is None
    assert "short" not in repr(config)


@pytest.mark.parametrize(
    ("place", "admin", "is_here"),
    [
        ("auto", {}, True),
        ("auto", {"port": 9}, False),
        ("auto", {"socket": "/s"}, False),
        ("door", {"port": 9}, True),
        ("admin", {"port": 9}, False),
    ],
)
def test_metrics_are_where_the_file_says(place: str, admin: dict[str, Any], is_here: bool) -> None:
    deployment = Deployment.model_validate({"gateway": {"metrics": place, "admin": admin}})
    assert gateway_config(deployment).has_metrics is is_here

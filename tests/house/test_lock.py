"""Installs are repeatable: every dependency is locked with hashes, and satisfies pyproject.toml."""

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from .source_tree import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
CHECKS = [Requirement(text) for text in PROJECT["optional-dependencies"]["dev"]]
APART = {"torch"}
"""Installed by the Makefile: its hash differs per build."""


def test_locked_versions_are_those_the_project_asks_for() -> None:
    runtime = locked("lock.txt")
    everything = runtime | locked("dev.txt")
    for versions, requirements in ((runtime, RUNTIME), (everything, CHECKS)):
        for requirement in requirements:
            if requirement.name not in APART:
                version = versions[canonicalize_name(requirement.name)]
                assert version in requirement.specifier, requirement


def test_torch_is_pinned_to_one_version_outside_the_lock() -> None:
    (torch,) = (requirement for requirement in RUNTIME if requirement.name == "torch")
    assert [clause.operator for clause in torch.specifier] == ["=="]
    assert "torch" not in locked("lock.txt") | locked("dev.txt")


@pytest.mark.parametrize("name", ["lock.txt", "dev.txt"])
def test_every_locked_package_has_hashes_and_no_address(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    for block in re.split(r"^(?=[\w-])", text, flags=re.MULTILINE)[1:]:
        assert re.fullmatch(
            r"[\w-]+==[\w.]+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n", block
        ), block


def test_no_package_is_locked_twice() -> None:
    assert not locked("lock.txt").keys() & locked("dev.txt").keys()


def locked(name: str) -> dict[str, Version]:
    text = (ROOT / "requirements" / name).read_text()
    pins = re.findall(r"^([\w-]+)==([\w.]+)", text, re.MULTILINE)
    return {canonicalize_name(package): Version(version) for package, version in pins}

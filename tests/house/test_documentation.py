"""What the documentation names exists, and what exists and faces users is documented."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from steelyard.cli.main import app
from steelyard.settings import examine
from steelyard.settings.keys import keys, sections
from steelyard.telemetry import CATALOGUE

from .pages import Page, pages
from .source_tree import ROOT, files, modules

EVERY_PAGE = pytest.mark.parametrize("page", pages(), ids=lambda page: page.where)


def test_the_reference_pages_are_current() -> None:
    command = [sys.executable, "-m", "steelyard.cli.reference", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + "run `make reference`"


@EVERY_PAGE
def test_links_lead_somewhere(page: Page) -> None:
    for link in page.links:
        name, _, anchor = link.partition("#")
        target = (page.path.parent / name).resolve() if name else page.path
        assert target.exists(), link
        if anchor:
            assert anchor in Page(target, target.read_text()).anchors, link


def test_pages_that_the_source_names_exist() -> None:
    named = {
        name
        for module in modules()
        for name in re.findall(r"(?<![\w/])(docs/[\w./-]+\.md)\b", module.path.read_text())
    }
    assert not {name for name in named if not (ROOT / name).is_file()}


@EVERY_PAGE
def test_commands_in_the_documentation_exist(page: Page) -> None:
    for line in (*_shell_lines(page), *page.spans):
        words = line.split()
        if words[:1] == ["make"]:
            _check_make(words[1:], line)
        elif words and re.fullmatch(r"(\.venv/bin/)?steelyard", words[0]):
            _check_steelyard(words[1:], line)
        elif words[:1] == ["python"] and len(words) > 1 and words[1].endswith(".py"):
            assert (ROOT / words[1]).is_file(), line


@EVERY_PAGE
def test_deployment_files_in_the_documentation_work(page: Page, tmp_path: Path) -> None:
    for block in page.blocks("yaml"):
        file = tmp_path / "deployment.yaml"
        file.write_text(block)
        assert isinstance(yaml.safe_load(block), dict)
        problems = examine(file=file, environ={}).problems
        assert not problems, block


@EVERY_PAGE
def test_settings_and_metrics_in_the_documentation_exist(page: Page) -> None:
    known = {key.name for key in keys().values()} | {".".join(path) for path in sections()}
    roots = {name.partition(".")[0] for name in known if "." in name}
    metrics = {spec.name for spec in CATALOGUE}
    for span in page.spans:
        name = span.partition(":")[0].partition("{")[0]
        if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", name) and name.partition(".")[0] in roots:
            is_module = (ROOT / "src/steelyard" / name.replace(".", "/")).with_suffix(".py")
            assert name in known or is_module.exists(), span
        if re.fullmatch(r"steelyard_\w+", name):
            assert name in metrics, span


@EVERY_PAGE
def test_every_measured_table_says_on_what_how_and_when(page: Page) -> None:
    for section in page.sections(r"(?i)\bmeasured\b"):
        for table in re.split(r"(?:^\|.*\n)+", section, flags=re.MULTILINE)[1:]:
            after = " ".join(table.strip().partition("\n\n")[0].split())
            match = re.fullmatch(
                r"Hardware: .+; command: `(.+)`; commit: `[0-9a-f]{7,40}`.*", after
            )
            assert match, f"no line with hardware, command and commit follows: {after[:120]}"
            script = re.search(r"(\S+\.py)|BENCH=(\S+)", match[1])
            assert script, f"{match[1]} names no benchmark"
            path = ROOT / (script[1] or f"benchmarks/{script[2]}.py")
            assert path.is_file() or (path.with_suffix("") / "__main__.py").is_file(), path


def test_the_example_in_the_readme_is_the_tested_one() -> None:
    (readme,) = (page for page in pages() if page.where == "README.md")
    examples = {path.read_text() for path in files(".py") if path.parent == ROOT / "examples"}
    for block in readme.blocks("python"):
        assert any(block in example for example in examples)
    assert readme.blocks("python")


def _shell_lines(page: Page) -> Iterator[str]:
    for block in page.blocks("sh"):
        yield from block.replace("\\\n", " ").splitlines()
    for block in page.blocks("console"):
        yield from (line[2:] for line in block.splitlines() if line.startswith("$ "))


def _check_make(words: list[str], line: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words:
        if "=" in word or word == "TARGET":
            break
        assert word in targets, line


def _check_steelyard(words: list[str], line: str) -> None:
    command: Any = typer.main.get_command(app)
    names_command = True  # until the first option, whose value may follow it
    for word in words:
        if word == "--" or re.match(r"[|>#…]", word):
            break
        if word.startswith("-") and word != "-":
            names_command = False
            known = {name for p in command.params for name in getattr(p, "opts", ())}
            assert word.partition("=")[0] in known | {"--help", "--install-completion"}, line
        elif names_command and (commands := getattr(command, "commands", None)):
            if word.isupper():  # `steelyard COMMAND`
                break
            assert word in commands, line
            command = commands[word]

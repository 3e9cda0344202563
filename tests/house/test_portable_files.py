"""The project runs anywhere: no file knows the machine it was written on."""

import re
from collections.abc import Iterator
from pathlib import Path

from .source_tree import ROOT, files

_FOLDERS = ("Users", "home", "mnt", "root", "work")
_LOCAL_PATH = re.compile(rf"(?<![\w.~$}}*<-])/(?:{'|'.join(_FOLDERS)})/")
_TEMPORARY = re.compile(r"(?<![\w.])/(?:var/)?tmp/")
_HOSTS = re.compile(
    r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|npmjs\.(?:org|com)|crates\.io|"
    r"proxy\.golang\.org|(?:docker|ghcr|quay)\.io"
)
_HOSTS_ALLOWED = {
    # The index of Python packages that pip itself asks when nobody told it otherwise.
    "src/steelyard/checkpoints/_pip.py",
    "tests/checkpoints/test_pulling_from_wheels.py",
    "tests/house/test_portable_files.py",
}


def test_no_file_names_a_folder_of_one_machine() -> None:
    found = [where for path in files() for where in _matches(path, _LOCAL_PATH)]
    assert not found


def test_only_tests_name_the_temporary_folder() -> None:
    paths = [path for path in files() if not path.is_relative_to(ROOT / "tests")]
    assert not [where for path in paths for where in _matches(path, _TEMPORARY)]


def test_no_file_names_a_registry() -> None:
    paths = [path for path in files() if str(path.relative_to(ROOT)) not in _HOSTS_ALLOWED]
    assert not [where for path in paths for where in _matches(path, _HOSTS)]


def _matches(path: Path, pattern: re.Pattern[str]) -> Iterator[str]:
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        return
    for number, line in enumerate(lines, start=1):
        if pattern.search(line):
            yield f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"

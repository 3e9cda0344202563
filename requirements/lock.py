"""Writes the lock files from pyproject.toml: exact versions, with the hashes of every file.

    make lock                                  keep the versions where the ranges allow it
    python requirements/lock.py --upgrade      take the newest versions

`lock.txt` holds what Steelyard runs on, `dev.txt` what its checks need besides. Both leave torch
out, whose wheel differs per build (CPU, CUDA versions) and so has no one hash; the Makefile
installs it apart, at the version that pyproject.toml pins, on top of its own dependencies, which
are locked.

Works in a temporary environment and follows pip's own settings. Run it on Linux with the Python of
the Makefile, where pip finds a CPU build of torch: others bring in their own libraries.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parent
_PIP_TOOLS = "pip-tools==7.6.2"
_OPTIONS = (
    "--quiet",
    "--generate-hashes",
    "--strip-extras",
    "--no-header",
    "--no-emit-options",
    "--unsafe-package=torch",
)
_HEADER = "# Written by `make lock` from pyproject.toml; edit that.\n"


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    upgrade = parser.parse_args().upgrade
    with tempfile.TemporaryDirectory() as folder:
        compiler = _install_compiler(Path(folder))
        pins = "" if upgrade else _read("lock.txt") + _read("dev.txt")
        everything = _compile(compiler, Path(folder) / "all.txt", pins, ["--extra=dev"])
        runtime = _compile(compiler, Path(folder) / "run.txt", "".join(everything.values()), [])
    _refuse_accelerator_builds(everything)
    assert runtime.items() <= everything.items(), "one resolution, so one version of each"
    _write("lock.txt", runtime)
    _write("dev.txt", {name: everything[name] for name in everything.keys() - runtime.keys()})


def _install_compiler(folder: Path) -> Path:
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", _PIP_TOOLS], check=True)
    return python.with_name("pip-compile")


def _compile(compiler: Path, output: Path, pins: str, options: list[str]) -> dict[str, str]:
    """Resolve; each package's lines by its name. Versions in `pins` are kept where they fit."""
    output.write_text(pins)
    command = [compiler, *_OPTIONS, *options, f"--output-file={output}", "pyproject.toml"]
    subprocess.run(command, cwd=_ROOT, check=True, stdin=subprocess.DEVNULL)
    text = re.sub(r"^#.*\n|^ +# .*\n", "", output.read_text(), flags=re.MULTILINE)
    text = re.sub(r" \\\n(?! +--hash)", "\n", text)  # what a removed comment leaves behind
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    return {block.partition("==")[0]: block.rstrip() + "\n" for block in blocks if block.strip()}


def _refuse_accelerator_builds(packages: dict[str, str]) -> None:
    """`nvidia-ml-py` reads sensors; everything else of that name belongs to a build of torch."""
    found = [name for name in packages if name.startswith("nvidia-") or name == "triton"]
    if unwanted := set(found) - {"nvidia-ml-py"}:
        names = ", ".join(sorted(unwanted))
        sys.exit(f"torch was resolved to a build for accelerators, which needs {names}")


def _read(name: str) -> str:
    path = _HERE / name
    return path.read_text() if path.exists() else ""


def _write(name: str, packages: dict[str, str]) -> None:
    blocks = [packages[package] for package in sorted(packages)]
    (_HERE / name).write_text(_HEADER + "".join(blocks))
    print(f"wrote {(_HERE / name).relative_to(_ROOT)}: {len(blocks)} packages")


if __name__ == "__main__":
    main()

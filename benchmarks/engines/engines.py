"""The engines under test, each with the settings it is fastest with here.

What was tried for the peers, and why these settings were chosen, is in README.md. Everything not
named here is the engine's default.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.engines import peers
from benchmarks.engines.engine import Engine, WeightBits
from benchmarks.engines.peer_weights import requantise, write_safetensors

__all__ = [
    "OUR_PRECISIONS",
    "PEER_KEYS",
    "Setting",
    "our_engine",
    "our_settings",
    "prepare_peers",
    "resolve_auto",
]

OUR_PRECISIONS = ("auto", "bf16", "int8", "int4")

_OUR_BITS = {
    "fp32": WeightBits(32, 32, "fp32", kv_bytes=4),
    "bf16": WeightBits(16, 16, "bf16"),
    "int8": WeightBits(8.5, 8.5, "int8"),
    "int4": WeightBits(5, 8.5, "int8"),
}
_LLAMA_TYPES = {
    "BF16": WeightBits(16, 16, "bf16"),
    "Q8_0": WeightBits(8.5, 8.5, "int8"),
    "Q4_1": WeightBits(5, 8.5, "int8"),
}
_VLLM_BITS = WeightBits(16, 16, "bf16")
_VLLM_KV_GIB = 2
_LLAMA_SLOTS = 16

PEER_KEYS = ("vllm-bf16", *(f"llama-{kind.lower()}" for kind in _LLAMA_TYPES))


@dataclass(frozen=True, slots=True)
class Setting:
    """What all engines have in common, and where things lie."""

    gguf: Path
    """The model as it was published."""
    threads: int
    context_tokens: int
    peers_dir: Path
    work_dir: Path


def our_settings(setting: Setting, precision: str) -> dict[str, str]:
    """What is not default in our deployment: `key` → value."""
    return {
        "engine.threads": str(setting.threads),
        "engine.context_tokens": str(setting.context_tokens),
        "weights.precision": precision,
    }


def our_engine(setting: Setting, precision: str) -> Engine:
    """Our server; what `auto` means is known once it runs (`resolve_auto`)."""
    settings = [f"{key}={value}" for key, value in our_settings(setting, precision).items()]
    argv = [sys.executable, "-m", "steelyard.cli", "serve", str(setting.gguf), "--port", "{port}"]
    for text in [*settings, "served_name=smollm2-135m", "telemetry.log.level=warning"]:
        argv += ["--set", text]
    return Engine(
        key=f"ours-{precision}",
        family="steelyard",
        precision=precision,
        argv=argv,
        shown=f"steelyard serve --set {' --set '.join(settings)}",
        bits=_OUR_BITS.get(precision, _OUR_BITS["bf16"]),
        ready_path="/readiness",
    )


def resolve_auto(engine: Engine, banner: str) -> Engine:
    """Our engine with the precision that its start-up banner names."""
    found = re.search(r"^\s+model\s+.*?, (fp32|bf16|int8|int4),", banner, re.MULTILINE)
    if found is None:
        raise ValueError(f"no precision in the banner: {banner[-500:]!r}")
    chosen = found.group(1)
    shown = chosen if engine.precision == chosen else f"{engine.precision} ({chosen})"
    return replace(engine, precision=shown, bits=_OUR_BITS[chosen])


def prepare_peers(setting: Setting, keys: set[str]) -> list[Engine]:
    """Install the wanted ones, convert the weights, and describe how they start."""
    engines = []
    if "vllm-bf16" in keys:
        engines.append(_vllm(setting, peers.install_vllm(setting.peers_dir)))
    kinds = [kind for kind in _LLAMA_TYPES if f"llama-{kind.lower()}" in keys]
    if kinds:
        programs = peers.install_llama(setting.peers_dir)
        engines += [_llama(setting, programs, kind) for kind in kinds]
    return engines


def _vllm(setting: Setting, python: Path) -> Engine:
    folder = setting.work_dir / "vllm-model"
    write_safetensors(setting.gguf, folder)
    options = [
        *("--dtype", "bfloat16"),
        *("--max-model-len", str(setting.context_tokens)),
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
    ]
    environment = {
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{setting.threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": str(_VLLM_KV_GIB),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    argv = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    argv += ["--served-model-name", "smollm2-135m", "--host", "127.0.0.1", "--port", "{port}"]
    return Engine(
        key="vllm-bf16",
        family="vllm",
        precision="bf16",
        argv=[*argv, *options],
        shown=f"{_assignments(environment, 'VLLM_CPU')} vllm serve {' '.join(options)}",
        bits=_VLLM_BITS,
        ready_path="/health",
        environment=environment,
    )


def _llama(setting: Setting, programs: Path, kind: str) -> Engine:
    file = setting.gguf
    if kind != "Q4_1":
        file = setting.work_dir / "llama-models" / f"{kind}.gguf"
        requantise(programs / "llama-quantize", setting.gguf, file, kind)
    threads = str(setting.threads)
    options = [
        *("--threads", threads),
        *("--threads-batch", threads),
        *("--parallel", str(_LLAMA_SLOTS)),
        *("--ctx-size", str(_LLAMA_SLOTS * setting.context_tokens)),
        *("--cache-ram", "0"),
    ]
    argv = [str(programs / "llama-server"), "--model", str(file), "--host", "127.0.0.1"]
    return Engine(
        key=f"llama-{kind.lower()}",
        family="llama.cpp",
        precision=kind,
        argv=[*argv, "--port", "{port}", *options],
        shown=f"llama-server {' '.join(options)}",
        bits=_LLAMA_TYPES[kind],
        ready_path="/health",
        extra={"cache_prompt": True},
    )


def _assignments(environment: Mapping[str, str], prefix: str) -> str:
    return " ".join(
        f"{key}={value}" for key, value in environment.items() if key.startswith(prefix)
    )

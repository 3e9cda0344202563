"""Whatever only decides, talks or reads settings must start on a laptop, without torch."""

import subprocess
import sys

from .source_tree import modules

TORCH_OF_THE_ENGINE = {
    f"steelyard.engine.{name}"
    for name in (
        "attention_backend",
        "candidates",
        "kv_memory",
        "native_attention",
        "reference_attention",
        "runner",
        "sampler",
        "step_batch",
    )
}
"""Modules of the engine that compute; the process around them imports them when it loads."""

_PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    heavy = {"torch", "vllm", "sglang", "transformers"} & sys.modules.keys()
    if heavy:
        sys.exit(f"importing {name} brings in {', '.join(sorted(heavy))}")
"""


def test_light_modules_import_no_torch() -> None:
    light = [module.name for module in modules() if not _may_compute(module.name)]
    assert "steelyard.engine.config" in light
    assert "steelyard.cli.main" in light
    command = [sys.executable, "-c", _PROBE, *light]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_list_of_computing_modules_names_no_strangers() -> None:
    assert {module.name for module in modules()} >= TORCH_OF_THE_ENGINE


def _may_compute(name: str) -> bool:
    is_program = name.endswith("__main__")
    return name.startswith("steelyard.models") or name in TORCH_OF_THE_ENGINE or is_program

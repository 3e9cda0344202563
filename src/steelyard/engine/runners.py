"""The kinds of runner by name. Modules are imported on use, so that only `torch` loads torch."""

import importlib
from typing import Final, cast

from steelyard.engine.config import EngineConfig
from steelyard.engine.runner_protocol import StepRunner

__all__ = ["RUNNER_KINDS", "create_runner"]

RUNNER_KINDS: Final = {
    "fake": ("steelyard.engine.fake_runner", "FakeRunner"),
    "torch": ("steelyard.engine.runner", "Runner"),
}
"""`EngineConfig.runner` → module and class; the class takes the configuration."""


def create_runner(config: EngineConfig) -> StepRunner:
    """The runner `config` asks for; nothing is loaded yet."""
    module, name = RUNNER_KINDS[config.runner]
    return cast(StepRunner, getattr(importlib.import_module(module), name)(config))

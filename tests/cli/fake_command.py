"""The `steelyard` command, except that its engine processes make tokens up: no weights, no torch.

`FAKE_MODEL` names the file that describes them (`engine.fake_runner.FakeModel`).
"""

import os

import msgspec

from steelyard.checkpoints import Checkpoint
from steelyard.cli import wiring
from steelyard.cli.main import main
from steelyard.engine.config import EngineConfig
from steelyard.settings import Resolved

real_engine_config = wiring.engine_config


def fake_engine_config(resolved: Resolved, checkpoint: Checkpoint, listen: str) -> EngineConfig:
    """As in production, but for the runner and what it loads."""
    config = real_engine_config(resolved, checkpoint, listen)
    return msgspec.structs.replace(config, runner="fake", checkpoint=os.environ["FAKE_MODEL"])


wiring.engine_config = fake_engine_config
main()

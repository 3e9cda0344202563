"""Fixtures that several folders of tests share."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

from steelyard.checkpoints import ModelStore
from steelyard.contract.errors import CheckpointError
from steelyard.settings.paths import default_cache_dir, environment

# A busy machine is no failure; `timeout` of pytest bounds every test.
# The examples are the same every time, so that a commit is not refused for what it did not change;
# `make test PYTEST_ARGS=--hypothesis-profile=explore` looks for new ones.
settings.register_profile("explore", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# A shell has its background jobs ignore Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """The user's cache: models and compiled kernels outlive a test run."""
    named = environment().get("STEELYARD_CACHE_DIR")
    return Path(named).expanduser() if named else default_cache_dir()


@pytest.fixture(scope="session")
def smollm2_path(cache_dir: Path) -> Path:
    """The GGUF file of SmolLM2-135M, from the user's model cache; fetched when it is not there."""
    try:
        return ModelStore(cache_dir).pull("smollm2-135m")
    except CheckpointError as error:
        pytest.skip(f"SmolLM2-135M is neither in the cache nor reachable: {error}")

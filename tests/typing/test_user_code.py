"""The public API has the types that its users rely on."""

import subprocess
import sys
from pathlib import Path

from steelyard.backends.fake import FakeEngine, FakeEngineConfig
from steelyard.contract import GenerateRequest, SamplingParams
from steelyard.contract.errors import InvalidRequest, Overloaded

from . import user_code

ROOT = Path(__file__).parents[2]


def test_user_code_type_checks() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", user_code.__file__]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_user_code_streams_from_an_engine() -> None:
    engine = FakeEngine(FakeEngineConfig())
    assert len((await user_code.stream(engine)).split()) == 4


def test_user_code_reads_settings() -> None:
    assert user_code.settings().gateway.port == 9000


def test_user_code_plans_a_step() -> None:
    request = GenerateRequest(
        request_id="one", prompt_ids=(1, 2, 3), sampling=SamplingParams(max_tokens=2)
    )
    assert user_code.one_step(request).tokens == 3


def test_user_code_asks_errors_when_to_come_back() -> None:
    assert user_code.delay_s(Overloaded("full", delay_s=3.0)) == 3.0
    assert user_code.delay_s(InvalidRequest("no")) == 0.0

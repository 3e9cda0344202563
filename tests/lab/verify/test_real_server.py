"""The real thing: `steelyard serve` with SmolLM2 passes everything that it offers."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.lab.mock.proxy import FAULTS, make_faults
from steelyard.lab.verify import Status, VerifyConfig, read_target, verify

from .conftest import behind
from .test_planted_faults import PROXY_FAULTS_FOUND_BY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_START_S = 120.0


@pytest.fixture(scope="module")
def server_url(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own, with everything at its default but the length of the context."""
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [sys.executable, "-m", "steelyard.cli", "serve", str(smollm2_path), "--port", "0"]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--set", "engine.context_tokens=2048"],
            stderr=stream,
            env={**os.environ, "NO_COLOR": "1"},
        )
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(30)


async def test_our_server_gives_no_false_alarm(server_url: str) -> None:
    report = await verify([read_target(server_url)], VerifyConfig(check_timeout_s=120.0))
    bad = [one for one in report.findings if one.status in (Status.FAILED, Status.BROKEN)]
    assert not bad
    skipped = {one.check for one in report.findings if one.status is Status.SKIPPED}
    assert skipped <= {
        "chat.json-object",
        "chat.json-schema",
        "chat.named-tool",
        "embeddings.vectors",
        "errors.key",
    }


@pytest.mark.parametrize("name", FAULTS)
async def test_each_planted_fault_is_found_on_a_real_model(server_url: str, name: str) -> None:
    check = PROXY_FAULTS_FOUND_BY[name]
    async with behind(server_url, *make_faults([name])) as url:
        config = VerifyConfig(only=(check,), check_timeout_s=120.0)
        (found,) = (await verify([read_target(url)], config)).findings
    assert found.status is Status.FAILED


async def test_our_server_is_equal_to_itself(server_url: str) -> None:
    targets = [read_target(server_url), read_target(server_url)]
    report = await verify(targets, VerifyConfig(only=("compare",), check_timeout_s=120.0))
    assert report.is_passed
    assert report.comparison is not None and report.comparison.differences[0] == 0


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Waits for the banner."""
    give_up_s = time.monotonic() + _START_S
    while time.monotonic() < give_up_s and process.poll() is None:
        if (found := re.search(r"address +(http://\S+)/v1", log.read_text())) is not None:
            return found[1]
        time.sleep(0.1)
    pytest.fail(f"the server did not start: {log.read_text()[-2000:]}")

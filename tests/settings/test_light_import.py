"""Settings are read by every command, so reading them must not cost a second of imports."""

import json
import subprocess
import sys
from typing import Any

import pytest

_PROBE = """
import json, sys, time
began = time.process_time()
import steelyard.settings
spent_s = time.process_time() - began
heavy = {"torch", "numpy", "aiohttp", "tokenizers", "prometheus_client", "typer"}
print(json.dumps({"spent_s": spent_s, "heavy": sorted(heavy & sys.modules.keys())}))
"""


def test_settings_import_quickly_and_without_heavy_packages() -> None:
    spent_s = []
    for _ in range(10):  # other work on the machine slows some of them down
        run = _import_in_a_fresh_process()
        assert run["heavy"] == []
        spent_s.append(run["spent_s"])
        if spent_s[-1] < 0.25:
            return
    pytest.fail(f"importing the settings took {min(spent_s):.3f} s of processor time at best")


def _import_in_a_fresh_process() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result

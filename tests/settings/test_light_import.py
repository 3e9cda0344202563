"""Settings are read by every command, so reading them must not cost a second of imports."""

import json
import subprocess
import sys
from typing import Any

_PROBE = """
import json, sys, time
began = time.process_time()
import steelyard.settings
spent_s = time.process_time() - began
heavy = {"torch", "numpy", "aiohttp", "tokenizers", "prometheus_client", "typer"}
print(json.dumps({"spent_s": spent_s, "heavy": sorted(heavy & sys.modules.keys())}))
"""


def test_settings_import_quickly_and_without_heavy_packages() -> None:
    runs = [_import_in_a_fresh_process() for _ in range(3)]
    assert runs[0]["heavy"] == []
    assert min(run["spent_s"] for run in runs) < 0.25


def _import_in_a_fresh_process() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result

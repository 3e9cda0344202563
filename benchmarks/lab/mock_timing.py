"""The mock's own timing error: how late tokens reach the kernel, by load.

python -m benchmarks.lab.mock_timing
"""

import argparse
import subprocess
import sys
from pathlib import Path

import psutil
from benchmarks.lab.mock_process import running_mock

_RAW_CLIENT = Path(__file__).with_name("raw_client.py")
_LOADS = ((10, 50), (100, 50), (200, 25), (500, 10), (500, 20))
"""Requests per second, tokens per request."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=6, help="of each load")
    parser.add_argument("--spin-us", type=int, default=0, help="as of `steelyard mock`")
    options = parser.parse_args()
    print("| requests/s | tokens/s | p50 ms | p99 ms | p99.9 ms | max ms | CPU µs/token |")
    print("|---|---|---|---|---|---|---|")
    for rate, tokens in _LOADS:
        print(measure(rate, tokens, options.seconds, options.spin_us), flush=True)


def measure(rate: int, tokens: int, seconds: float, spin_us: int) -> str:
    """One row of the table."""
    jittered = {"ttft_ms": "gamma:200,0.1", "itl_ms": "gamma:20,0.2"}
    with running_mock(spin_us=spin_us, **jittered) as mock:
        before_s = sum(psutil.Process(mock.pid).cpu_times()[:2])
        arguments = map(str, (mock.port, rate, seconds, tokens))
        subprocess.run([sys.executable, str(_RAW_CLIENT), *arguments], check=True)
        found = mock.timing()
        cpu_s = sum(psutil.Process(mock.pid).cpu_times()[:2]) - before_s
    cells = [f"{found[f'{name}_ms']:.3f}" for name in ("p50", "p99", "p999", "max")]
    cost = 1e6 * cpu_s / found["tokens"]
    return f"| {rate} | {rate * tokens} | {' | '.join(cells)} | {cost:.0f} |"


if __name__ == "__main__":
    main()

"""Our load generator's own measuring core, run once: `lab.client` sends, `lab.stats` counts.

    python -m benchmarks.lab.own_client URL --rate 10 --requests 600 --output-tokens 50 --out FILE

Leaves out everything that `steelyard bench run` adds around it (probing, warm-up, the audit, the
report), so it says what the instrument can do and not what the command reports.
"""

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

import numpy as np
from benchmarks.lab.truth_numbers import percentiles

from steelyard.lab.client import Crew, CrewReport, Extras, Job, Target
from steelyard.lab.load import Fixed, OpenLoop, Synthetic, Workload, new_nonce, steady
from steelyard.lab.stats.latencies import Window, gaps, request_latencies

_EVERYTHING = Window(-np.inf, np.inf)


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(Crew([_job(options, Path(folder))]).run())
    options.out.write_text(json.dumps(_numbers(report)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--arrivals", choices=["poisson", "constant"], default="poisson")
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--output-tokens", type=int, required=True)
    parser.add_argument("--concurrency", type=int, help="cap; waiting in line counts")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def _job(options: argparse.Namespace, folder: Path) -> Job:
    arrivals = OpenLoop(
        steady(options.rate, options.requests / options.rate),
        cv=1.0 if options.arrivals == "poisson" else 0.0,
        concurrency_cap=options.concurrency,
    )
    content = Synthetic(input=Fixed(32), output=Fixed(options.output_tokens))
    return Job(
        workload=Workload(arrivals=arrivals, content=content, seed=1),
        target=Target(url=options.url, model="mock", extras=Extras(return_token_ids=False)),
        nonce=new_nonce(),
        run_id="accuracy",
        records_path=str(folder / "records.npz"),
    )


def _numbers(report: CrewReport) -> dict[str, object]:
    """Percentiles in milliseconds, in the words of `truth_numbers`."""
    records = report.records
    latencies = request_latencies(records, _EVERYTHING)
    sent_s = np.sort(records.requests["sent_s"])
    seconds = {
        "ttft": latencies.ttft_sent_s,
        "tpot": latencies.tpot_s,
        "itl": gaps(records, _EVERYTHING).per_token_s,
        "e2e": latencies.e2e_sent_s,
        "e2e from schedule": latencies.e2e_s,
    }
    return {
        "percentiles_ms": {name: percentiles(1e3 * values) for name, values in seconds.items()},
        "rate": (len(sent_s) - 1) / (sent_s[-1] - sent_s[0]),
        "output_tokens": float(latencies.output_tokens.sum()),
        "incomplete": int((~records.is_complete).sum()),
    }


if __name__ == "__main__":
    main()

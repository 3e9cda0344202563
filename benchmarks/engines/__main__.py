"""`python -m benchmarks.engines`: measure, then write results and report."""

import sys

from benchmarks.engines.campaign import Campaign
from benchmarks.engines.plan import read_plan
from benchmarks.engines.report import write_report

from steelyard.checkpoints import ModelStore
from steelyard.settings import resolve


def main() -> None:
    """Fetches the model where it is not in the cache, as the server itself would."""
    plan = read_plan()
    gguf = ModelStore(resolve().cache_dir).pull("smollm2-135m")
    results = Campaign(plan, gguf).run()
    report = plan.out.with_suffix(".md")
    write_report(results, report)
    print(report.read_text())
    print(f"results: {plan.out}", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Is one measurement better than another? Archive, comparison, gate, schedule.

`bench` measures, this package remembers and judges. Statistics are in `contrasts`, files in
`archive`; `cli.bench_judge` talks.
"""

from steelyard.lab.judge.archive import Archive, Entry
from steelyard.lab.judge.blocks import BlockOptions, compare_groups, measure_groups
from steelyard.lab.judge.comparison import Comparison, Difference, Verdict, comparison_json
from steelyard.lab.judge.fingerprint import Fingerprint, fingerprint_of, unlike_fields
from steelyard.lab.judge.stored import StoredSide, compare_stored
from steelyard.lab.judge.stored_results import read_any_result, runs_of

__all__ = [
    "Archive",
    "BlockOptions",
    "Comparison",
    "Difference",
    "Entry",
    "Fingerprint",
    "StoredSide",
    "Verdict",
    "compare_groups",
    "compare_stored",
    "comparison_json",
    "fingerprint_of",
    "measure_groups",
    "read_any_result",
    "runs_of",
    "unlike_fields",
]

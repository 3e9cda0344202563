"""Names the bound that holds in a run: client, gateway, queue, KV memory, prefill or decode.

`server_metrics` collects what the server says, `dialects` reads it, `explanation` decides.
"""

from steelyard.lab.explain.explanation import BOUNDS, Explanation, explain, explanation_json
from steelyard.lab.explain.tables import explanation_report

__all__ = ["BOUNDS", "Explanation", "explain", "explanation_json", "explanation_report"]

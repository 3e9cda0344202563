"""Are the answers what they are counted as: tokens, cache, failures, enough of them?"""

import numpy as np

from steelyard.lab.audit.evidence import AuditLimits, Check, Evidence
from steelyard.lab.load import CacheState
from steelyard.lab.outcomes import Outcome, RequestFlag
from steelyard.lab.records import Records

__all__ = [
    "TokenCounts",
    "check_cache",
    "check_failures",
    "check_sample",
    "check_steady_state",
    "check_tokens",
]

_UNRELATED_TOKENS = 64
"""Per prompt, that a cache may hold of any prompt: the chat template's beginning."""
_FEWEST = 30


class TokenCounts:
    """Sums over complete requests for which both counts of a pair are known."""

    def __init__(self, records: Records) -> None:
        self._requests = records.requests[records.is_complete]

    def pair(self, first: str, second: str) -> tuple[int, int]:
        """Both sums; zeros when no request has both."""
        one, other = self._requests[first], self._requests[second]
        both = (one >= 0) & (other >= 0)
        return int(one[both].sum(dtype=np.int64)), int(other[both].sum(dtype=np.int64))


def check_tokens(evidence: Evidence, limits: AuditLimits) -> Check:
    """Usage against token ids, events and our own count. Only exact counts can contradict: events
    may bring several tokens, and a tokenizer of ours may not be the server's."""
    counts = TokenCounts(evidence.records)
    usage, ids = counts.pair("output_usage", "output_ids")
    reported, chunks = counts.pair("output_usage", "output_chunks")
    again_usage, again = counts.pair("output_tokens", "output_retokenised")
    values = {
        "usage": float(reported),
        "chunks": float(chunks),
        "ids": float(ids),
        "retokenised_of": float(again_usage),
        "retokenised": float(again),
    }
    if ids and abs(usage / ids - 1) > limits.token_share:
        message = f"the server's usage says {usage} tokens where it sent {ids} token ids"
        return Check.judged("tokens", False, message, values)
    if chunks and reported < chunks * (1 - limits.token_share):
        message = f"the server's usage says {reported} tokens in {chunks} events with text"
        return Check.judged("tokens", False, message, values)
    notes = []
    if not reported and not ids:
        notes.append("the server does not count tokens: each event is taken for one")
    if reported and reported > chunks * (1 + limits.token_share):
        notes.append(f"events bring {reported / max(chunks, 1):.2f} tokens on average")
    if again and abs(again / again_usage - 1) > limits.token_share:
        notes.append(f"our tokenizer counts {again} tokens where the server counts {again_usage}")
    message = "; ".join(notes) or f"{reported or ids} tokens, by all counts alike"
    return Check(name="tokens", status="warn" if notes else "pass", message=message, values=values)


def check_cache(evidence: Evidence) -> Check:
    """Was the prefix cache in the state that was asked for?"""
    requests = evidence.records.requests
    known = requests[evidence.records.is_complete & (requests["cached_tokens"] >= 0)]
    asked = evidence.workload.cache
    if not len(known):
        message = f"{asked.value}; the server does not say what it found in its cache"
        return Check(name="cache", status="skip", message=message)
    table = evidence.plan.sessions
    turns = table.first_turn[known["session"] % len(table)] + known["turn"]
    own = table.reusable_tokens[turns].sum(dtype=np.int64)
    prompts = max(int(known["prompt_tokens"].clip(0).sum(dtype=np.int64)), 1)
    cached = int(known["cached_tokens"].sum(dtype=np.int64))
    share, expected = cached / prompts, (own + _UNRELATED_TOKENS * len(known)) / prompts
    values = {"cached_share": share, "reusable_share": float(own / prompts)}
    message = f"{asked.value}; {share:.1%} of the prompts' tokens were cached"
    if asked is CacheState.COLD and share > expected + 0.02:
        message += f", where the load itself explains {own / prompts:.1%}: it was not cold"
        return Check.judged("cache", False, message, values)
    if asked is CacheState.WARM and share < 0.5:
        message += ": it was not warm"
        return Check.judged("cache", False, message, values)
    return Check.judged("cache", True, message, values)


def check_failures(evidence: Evidence, limits: AuditLimits) -> Check:
    """Latencies are those of the requests that were answered; how many were not?"""
    outcomes = evidence.records.requests["outcome"]
    asked = outcomes[outcomes != Outcome.ABANDONED]
    if not len(asked) or not np.any(asked == Outcome.COMPLETE):
        message = "not a single request was answered"
        return Check.judged("failures", False, message)
    shed = float(np.mean(asked == Outcome.SHED))
    failed = float(np.mean((asked != Outcome.SHED) & (asked != Outcome.COMPLETE)))
    values = {"failed_share": failed, "shed_share": shed}
    counted = failed if evidence.sheds_on_purpose else failed + shed
    message = f"{failed:.1%} of the requests failed, {shed:.1%} were turned away"
    if counted > limits.failed_share:
        message += ": the latencies are those of the rest"
        return Check.judged("failures", False, message, values)
    return Check(
        name="failures", status="warn" if counted else "pass", message=message, values=values
    )


def check_steady_state(evidence: Evidence) -> Check:
    """Is there a steady state, and is the beginning left out?"""
    window = evidence.window
    values = {"begin_s": window.begin_s, "end_s": window.end_s}
    if not evidence.is_settled:
        message = "no steady state was found: percentiles are over the whole run"
        return Check(name="steady_state", status="warn", message=message, values=values)
    message = f"measured from {window.begin_s:.1f} s to {window.end_s:.1f} s"
    return Check.judged("steady_state", True, message, values)


def check_sample(evidence: Evidence) -> Check:
    """Are there enough answers for the percentiles?"""
    requests = evidence.records.requests
    measured = evidence.records.is_complete & evidence.window.holds(requests["scheduled_s"])
    count = int(np.sum(measured & ~evidence.records.flagged(RequestFlag.WARM_UP)))
    values = {"requests": float(count)}
    if count < _FEWEST:
        message = f"only {count} answers were measured"
        return Check(name="sample", status="warn", message=message, values=values)
    message = f"{count} answers were measured"
    if count < 368:
        message += "; a p99 with an upper limit needs 368"
    return Check.judged("sample", True, message, values)

"""Our histograms count as prometheus_client's do, and a token costs less than a microsecond."""

import timeit

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from steelyard.contract import RealClock
from steelyard.telemetry import Metrics
from steelyard.telemetry import _instruments as instruments

_BOUNDS = (0.1, 0.5, 1.0, 2.5)
_VALUES = st.floats(min_value=0, max_value=5) | st.sampled_from(_BOUNDS)


@given(st.lists(st.tuples(_VALUES, st.integers(min_value=1, max_value=4)), max_size=40))
def test_buckets_count_as_the_reference_does(observations: list[tuple[float, int]]) -> None:
    ours = instruments.Histogram(_BOUNDS)
    reference = Histogram("reference", "x", buckets=_BOUNDS, registry=CollectorRegistry())
    for value, times in observations:
        ours.observe(value, times)
        for _ in range(times):
            reference.observe(value)
    (family,) = reference.collect()
    expected = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert dict(ours.cumulative()) == expected
    (count,) = [s.value for s in family.samples if s.name.endswith("_count")]
    assert ours.count == count


def test_a_token_costs_less_than_a_microsecond() -> None:
    metrics = Metrics(clock=RealClock(), models=["small"])
    stream = metrics.request("small").stream()
    stream.tokens(1)
    # The best of many short runs: other work on the machine only ever adds.
    best_s = min(timeit.repeat(lambda: stream.tokens(1), number=1000, repeat=50)) / 1000
    assert best_s < 1e-6

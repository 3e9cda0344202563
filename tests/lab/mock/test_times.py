"""Under virtual time every token comes exactly when the configuration says."""

import itertools
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.lab.mock.drift import Drift
from steelyard.lab.mock.timers import NS_PER_MS, NS_PER_S

from .virtual import VirtualMock, md_c_starts_ms


def test_constant_times_are_exact() -> None:
    mock = VirtualMock(ttft_ms=200, itl_ms=20, output_tokens=4)
    _, heard = mock.arrive(7)
    mock.run_until(1000)
    assert heard.token_times_ms == [207, 227, 247, 267]
    assert [batch.is_last for batch in heard.batches] == [False, False, False, True]


def test_jittered_times_have_the_asked_mean_and_deviation() -> None:
    mock = VirtualMock(ttft_ms="gamma:200,0.1", itl_ms="normal:20,3", output_tokens=200)
    firsts, gaps = [], []
    for number in range(100):
        _, heard = mock.arrive(number * 10_000)
        mock.run_until((number + 1) * 10_000)
        times = heard.token_times_ms
        firsts.append(times[0] - number * 10_000)
        gaps += [after - before for before, after in itertools.pairwise(times)]
    assert statistics.mean(firsts) == pytest.approx(200, rel=0.05)
    assert statistics.stdev(firsts) == pytest.approx(20, rel=0.25)
    assert statistics.mean(gaps) == pytest.approx(20, rel=0.01)
    assert statistics.stdev(gaps) == pytest.approx(3, rel=0.03)


def test_equal_seeds_give_equal_times_and_other_seeds_others() -> None:
    def times(seed: int) -> list[float]:
        mock = VirtualMock(ttft_ms="gamma:200,0.5", itl_ms="gamma:20,0.5", seed=seed)
        heard = [mock.arrive(number)[1] for number in range(3)]
        mock.run_until(10_000)
        return [time for one in heard for time in one.token_times_ms]

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_requests_do_not_share_a_random_stream() -> None:
    mock = VirtualMock(ttft_ms="exponential:200")
    heard = [mock.arrive(0)[1] for _ in range(50)]
    mock.run_until(20_000)
    assert len({one.token_times_ms[0] for one in heard}) == 50


@given(
    arrivals=st.lists(st.integers(0, 400), min_size=1, max_size=60).map(sorted),
    tokens=st.integers(1, 5),
    slots=st.integers(1, 4),
)
def test_waiting_is_that_of_the_reference_queue(
    arrivals: list[int], tokens: int, slots: int
) -> None:
    mock = VirtualMock(ttft_ms=30, itl_ms=10, output_tokens=tokens, slots=slots)
    jobs = [mock.arrive(at)[0] for at in arrivals]
    mock.run_until(60 * 100 + 500)
    service_ms = 30 + 10 * (tokens - 1)
    starts = md_c_starts_ms([float(at) for at in arrivals], service_ms, slots)
    assert [(job.slot_ns or 0) / NS_PER_MS for job in jobs] == starts


def test_an_md1_queue_waits_as_long_as_theory_says() -> None:
    generator = random.Random(3)
    mock = VirtualMock(ttft_ms=10, itl_ms=0, output_tokens=1, slots=1)
    at_ms, jobs = 0.0, []
    for _ in range(20_000):
        at_ms += generator.expovariate(0.8 / 10)
        jobs.append(mock.arrive(at_ms)[0])
    mock.run_until(at_ms + 10_000)
    waits_ms = [((job.slot_ns or 0) - job.arrived_ns) / NS_PER_MS for job in jobs]
    # Pollaczek and Khinchine for constant service: rho * s / (2 (1 - rho)).
    assert statistics.mean(waits_ms) == pytest.approx(0.8 * 10 / (2 * 0.2), rel=0.15)


def test_a_full_queue_takes_no_more() -> None:
    mock = VirtualMock(slots=1, queue_limit=1)
    assert mock.serving.can_queue()
    mock.arrive(0)
    assert mock.serving.can_queue()
    mock.arrive(0)
    assert not mock.serving.can_queue()
    mock.run_until(100_000)
    assert mock.serving.can_queue()


def test_a_client_that_leaves_frees_its_slot_at_once() -> None:
    mock = VirtualMock(slots=1, ttft_ms=100, output_tokens=10, itl_ms=10)
    first, heard = mock.arrive(0)
    second, _ = mock.arrive(5)
    third, _ = mock.arrive(6)
    mock.run_until(50)
    mock.serving.withdraw(second)
    mock.serving.withdraw(first)
    mock.serving.withdraw(first)
    mock.run_until(1000)
    assert heard.batches == []
    assert (third.slot_ns or 0) / NS_PER_MS == 50
    assert (mock.serving.running, mock.serving.waiting) == (0, 0)


def test_bundles_come_when_all_their_tokens_exist() -> None:
    mock = VirtualMock(ttft_ms=100, itl_ms=10, output_tokens=8, bundle_tokens=3)
    _, heard = mock.arrive(0)
    mock.run_until(1000)
    assert [(b.first, b.count, b.due_ns / NS_PER_MS) for b in heard.batches] == [
        (0, 3, 100),
        (3, 3, 130),
        (6, 2, 150),
    ]


def test_prompts_are_prefilled_one_after_the_other() -> None:
    mock = VirtualMock(ttft_ms=10, prefill_tokens_per_s=1000, output_tokens=1)
    heard = [mock.arrive(0, prompt_tokens=100)[1] for _ in range(3)]
    mock.run_until(1000)
    assert [one.token_times_ms for one in heard] == [[110], [210], [310]]


def test_gaps_grow_with_the_number_of_running_requests() -> None:
    mock = VirtualMock(ttft_ms=10, itl_ms=5, itl_us_per_running=2000, output_tokens=3)
    heard = [mock.arrive(0)[1] for _ in range(4)]
    mock.run_until(1000)
    assert heard[0].token_times_ms == [10, 10 + 5 + 3 * 2, 10 + 2 * (5 + 3 * 2)]


def test_full_kv_memory_preempts_the_youngest_which_goes_on_later() -> None:
    mock = VirtualMock(ttft_ms=10, itl_ms=10, output_tokens=20, kv_tokens=40)
    old, old_heard = mock.arrive(0, prompt_tokens=10)
    young, young_heard = mock.arrive(1, prompt_tokens=10)
    mock.run_until(10_000)
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert mock.serving.preemptions_total == 1
    assert old_heard.token_times_ms == [10 * (i + 1) for i in range(20)]
    positions = [b.first for b in young_heard.batches]
    assert positions == list(range(20))
    assert young_heard.token_times_ms[-1] > 21 * 10
    assert mock.serving.kv_used_tokens == 0


def test_a_request_larger_than_kv_memory_is_served_alone() -> None:
    mock = VirtualMock(ttft_ms=10, itl_ms=10, output_tokens=5, kv_tokens=8)
    _, heard = mock.arrive(0, prompt_tokens=100)
    mock.run_until(1000)
    assert len(heard.token_times_ms) == 5


def test_a_stall_pauses_once() -> None:
    mock = VirtualMock(
        ttft_ms=10, itl_ms=10, output_tokens=5, fault_stall=1, stall_s=1, fault_tokens=2
    )
    _, heard = mock.arrive(0)
    mock.run_until(10_000)
    assert heard.token_times_ms == [10, 20, 1030, 1040, 1050]


def test_a_gateway_forwards_one_event_after_the_other() -> None:
    mock = VirtualMock(ttft_ms=10, itl_ms=10, output_tokens=2, gateway_us_per_event=2000)
    heard = [mock.arrive(0)[1] for _ in range(3)]
    mock.run_until(1000)
    assert [one.token_times_ms for one in heard] == [[12, 22], [14, 24], [16, 26]]


def test_drift_has_mean_one_its_deviation_and_a_memory() -> None:
    drift = Drift(cv=0.1, memory_s=1, seed=5, start_ns=0)
    factors = [drift.factor(i * NS_PER_S // 10) for i in range(50_000)]
    assert statistics.mean(factors) == pytest.approx(1, abs=0.01)
    assert statistics.stdev(factors) == pytest.approx(0.1, rel=0.1)
    assert statistics.correlation(factors[:-1], factors[1:]) > 0.85
    assert abs(statistics.correlation(factors[:-100], factors[100:])) < 0.1


def test_without_drift_the_factor_is_exactly_one() -> None:
    assert Drift(cv=0, memory_s=1, seed=5, start_ns=0).factor(10**15) == 1.0

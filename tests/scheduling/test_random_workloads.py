"""Whatever comes, in whatever order: nothing is lost, repeated, mixed up, leaked or stuck.

`Driver` checks each step (integrity, memory contents, contiguous chunks, the first sequence always
advancing) and, at the end, every stream against a model that computed it alone. Hypothesis looks
for the shortest sequence of calls that breaks it, seeded traffic for dense and long ones.
"""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from steelyard.contract import GenerateRequest
from steelyard.contract.errors import ContextTooLong, EngineFailed, Overloaded
from steelyard.scheduling.config import KVGroup
from steelyard.scheduling.step_plan import StepPlan

from .paged_model import Driver, compressed, expected_stream, full, request, state, window

MODELS: dict[str, list[KVGroup]] = {
    "full": [full(9)],
    "full, roomy": [full(60)],
    "window": [window(7, window_tokens=6)],
    "full and window": [full(12), window(7, window_tokens=7)],
    "window of one": [full(10), window(4, window_tokens=1)],
    "compressed": [full(14), compressed(8)],
    "full and state": [full(12), state(6)],
    "four kinds": [full(14, block_tokens=2), window(12, 5, 2), compressed(9, 4), state(8, 4)],
}

asks = st.fixed_dictionaries(
    {
        "prompt_ids": st.builds(
            lambda family, shared, tail: [10 + family] * shared + (tail or [3]),
            st.integers(0, 2),
            st.integers(0, 12),
            st.lists(st.integers(0, 1), max_size=6),
        ),
        "max_tokens": st.integers(1, 14),
        "min_tokens": st.integers(0, 3),
        "priority": st.integers(0, 1),
        "cache_salt": st.sampled_from(["", "", "other"]),
        "deadline_s": st.sampled_from([None, None, None, 0.05]),
        "stop_token_ids": st.just((5, 6)),
    }
)


class RandomWorkload(RuleBasedStateMachine):
    """Submits, aborts, failures and passing time between steps of a scheduler short of memory."""

    @initialize(
        model=st.sampled_from(sorted(MODELS)),
        config=st.fixed_dictionaries(
            {
                "max_running": st.integers(1, 5),
                "max_step_tokens": st.integers(2, 24),
                "min_prefill_tokens": st.integers(1, 8),
                "step_stretch": st.sampled_from([1.0, 1.5, float("inf")]),
                "memory_threshold": st.sampled_from([0.3, 0.9, 1.0]),
                "min_batch": st.integers(1, 3),
                "max_wait_s": st.sampled_from([0.0, 0.05]),
                "prefix_cache": st.sampled_from([True, True, True, False]),
            }
        ),
    )
    def start(self, model: str, config: dict[str, Any]) -> None:
        self.driver = Driver(MODELS[model], context_tokens=28, max_waiting=12, **config)
        self.submitted = 0
        self.planned: StepPlan | None = None

    @rule(burst=st.lists(asks, min_size=1, max_size=5), emitted=st.sampled_from([0, 0, 0, 2]))
    def submit(self, burst: list[dict[str, Any]], emitted: int) -> None:
        for ask in burst:
            self.submitted += 1
            asked = request(str(self.submitted), **ask)
            if emitted:
                stream, _ = expected_stream(asked)
                asked = request(str(self.submitted), emitted_ids=tuple(stream[:emitted]), **ask)
            submit_if_accepted(self.driver, asked)

    @rule(back=st.integers(0, 5))
    def abort(self, back: int) -> None:
        self.driver.abort(str(self.submitted - back))

    @rule(steps=st.integers(1, 8))
    @precondition(lambda self: self.planned is None)
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.driver.step()

    @rule()
    @precondition(lambda self: self.planned is None)
    def plan_only(self) -> None:
        """Leave a plan open, so that submits and aborts fall between it and its result."""
        self.planned = self.driver.plan()
        self.result = self.driver.model.run(self.planned)

    @rule()
    @precondition(lambda self: self.planned is not None)
    def apply_only(self) -> None:
        assert self.planned is not None
        self.driver.take(self.planned, self.result)
        self.planned = None

    @rule()
    @precondition(lambda self: self.planned is not None)
    def fail_step(self) -> None:
        assert self.planned is not None
        self.driver.scheduler.fail(self.planned, EngineFailed("a test"))
        self.driver.scheduler.check_integrity()
        self.planned = None

    @rule(duration_s=st.sampled_from([0.01, 0.04, 0.2]))
    def wait(self, duration_s: float) -> None:
        self.driver.now_s += duration_s

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        if self.planned is not None:
            self.driver.take(self.planned, self.result)
        self.driver.run_until_idle()
        self.driver.check_complete()


TestRandomWorkload = RandomWorkload.TestCase
TestRandomWorkload.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_dense_traffic_gets_through_with_the_streams_of_a_lone_model(model: str) -> None:
    drivers = [run_traffic(model, random.Random(seed)) for seed in range(25)]
    counters = [driver.scheduler.status_counters for driver in drivers]
    # Otherwise the traffic would prove nothing.
    assert any(c.cached_tokens_total for c in counters)
    assert any(c.preemptions_total for c in counters) or model == "full, roomy"


@pytest.mark.slow
@pytest.mark.parametrize("model", sorted(MODELS))
def test_much_dense_traffic_gets_through_too(model: str) -> None:
    for seed in range(1000, 1400):
        run_traffic(model, random.Random(seed))


def run_traffic(model: str, dice: random.Random) -> Driver:
    """Sixty requests at a random rate through a random configuration."""
    driver = Driver(
        MODELS[model],
        context_tokens=28,
        max_running=dice.randint(2, 5),
        max_step_tokens=dice.randint(5, 24),
        min_prefill_tokens=dice.randint(1, 8),
        step_stretch=dice.choice([1.0, 1.5, float("inf")]),
        memory_threshold=dice.choice([0.5, 0.9, 1.0]),
        min_batch=dice.randint(1, 3),
        max_wait_s=dice.choice([0.0, 0.05]),
        prefix_cache=dice.random() < 0.9,
    )
    rate = dice.uniform(0.2, 0.8)
    number = 0
    while number < 60:
        if dice.random() < rate:
            number += 1
            prefix = [10 + dice.randint(0, 2)] * dice.randint(0, 12)
            tail = [dice.randint(0, 1) for _ in range(dice.randint(1, 5))]
            priority = dice.randint(0, 1)
            asked = request(str(number), prefix + tail, dice.randint(1, 14), priority=priority)
            submit_if_accepted(driver, asked)
        else:
            driver.step()
        if dice.random() < 0.05:
            driver.abort(str(dice.randint(1, max(1, number))))
    driver.run_until_idle()
    driver.check_complete()
    return driver


def submit_if_accepted(driver: Driver, asked: GenerateRequest) -> None:
    try:
        driver.submit(asked)
    except ContextTooLong:
        assert len(asked.prompt_ids) + asked.sampling.max_tokens > 14
    except Overloaded as error:
        assert len(driver.scheduler.waiting) >= driver.config.max_waiting
        assert error.delay_s >= 1

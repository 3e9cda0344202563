"""Our own door gives no false alarm: what fails before the fake engine is what it cannot do."""

from steelyard.lab.verify import Status, VerifyConfig, read_target, verify
from tests.gateway.doors import Door, engine_config, open_door

from .conftest import findings, quick_config

NEEDS_A_SAMPLER = {
    "sampling.distribution",
    "sampling.frequency-penalty",
    "sampling.min-p",
    "sampling.presence-penalty",
    "sampling.repetition-penalty",
    "sampling.temperature",
    "sampling.top-k",
    "sampling.top-p",
}
"""The fake engine draws its tokens from a hash: greedy or not is all it knows."""


async def test_only_what_needs_a_sampler_fails_before_the_fake_engine(door: Door) -> None:
    found = await findings(door.url)
    failed = {name for name, one in found.items() if one.status in (Status.FAILED, Status.BROKEN)}
    assert failed == NEEDS_A_SAMPLER
    passed = sum(one.status is Status.PASSED for one in found.values())
    assert passed >= 100


async def test_answers_that_end_by_themselves_are_checked_too() -> None:
    with open_door(engine=engine_config(output_tokens=9)) as door:
        found = await findings(door.url, "lengths")
    assert {one.status for one in found.values()} == {Status.PASSED}, found


async def test_clients_who_leave_are_seen_to_free_their_slots() -> None:
    with open_door(engine=engine_config(itl_s=0.01)) as door:
        found = await findings(door.url, "cancellation", "streams.as-made", "http.metrics")
        assert {one.status for one in found.values()} == {Status.PASSED}, found
        assert len(door.engine.recent_aborts) == 2


async def test_a_check_that_takes_too_long_has_failed() -> None:
    with open_door(engine=engine_config(ttft_s=1.0)) as door:
        config = VerifyConfig(only=("chat.shape",), check_timeout_s=0.2)
        report = await verify([read_target(door.url)], config)
    (finding,) = report.findings
    assert finding.status is Status.FAILED
    assert finding.problems == ("took longer than 0.2 s",)


async def test_skipped_checks_prove_nothing(door: Door) -> None:
    report = await verify([read_target(door.url)], quick_config("embeddings"))
    assert [one.status for one in report.findings] == [Status.SKIPPED]
    assert not report.is_passed

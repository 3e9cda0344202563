"""Two servers are compared token by token."""

from steelyard.lab.verify import Report, Status, VerifyConfig, read_target, verify
from tests.gateway.doors import Door, engine_config, open_door

from .conftest import behind
from .planted_faults import LostHistory


async def compare(left: str, right: str, *only: str) -> Report:
    config = VerifyConfig(only=only or ("compare",))
    return await verify([read_target(left), read_target(right)], config)


async def test_a_server_is_equal_to_itself(door: Door) -> None:
    report = await compare(door.url, door.url)
    assert report.comparison is not None
    assert {one.status for one in report.comparison.findings} == {Status.PASSED}
    assert report.comparison.differences == (0, 0)
    assert report.comparison.positions >= 16 * 40
    assert report.is_passed


async def test_another_model_differs_and_the_place_is_named(door: Door) -> None:
    letters = tuple(b"abcdefghijklmnopqrstuvwxy")  # one fewer: most tokens become others
    with open_door(engine=engine_config(token_ids=letters)) as other:
        report = await compare(door.url, other.url)
    assert report.comparison is not None
    by_name = {one.check: one for one in report.comparison.findings}
    assert by_name["compare.prompts"].status is Status.PASSED
    story = by_name["compare.story-1.text"]
    assert story.status is Status.FAILED and "gap" in story.problems[0]
    clear, ties = report.comparison.differences
    assert clear > 10 and ties == 0
    assert not report.is_passed


async def test_later_differences_are_followed_behind_the_first(door: Door) -> None:
    """The fake engine's tokens depend on the whole prompt, so each new start differs again."""
    letters = tuple(b"abcdefghijklmnopqrstuvwxy")
    with open_door(engine=engine_config(token_ids=letters)) as other:
        report = await compare(door.url, other.url, "compare.counting.text")
    assert report.comparison is not None
    (prompt,) = report.comparison.prompts
    positions = [one.position for one in prompt.differences]
    assert len(positions) > 3 and positions == sorted(set(positions))
    assert prompt.positions > prompt.common_tokens


async def test_prompts_of_other_lengths_are_found_first(door: Door) -> None:
    async with behind(door.url, LostHistory()) as url:
        report = await compare(door.url, url, "compare.prompts")
    (found,) = report.findings
    assert found.status is Status.FAILED and found.problems[0].startswith("turns: ")


async def test_each_server_is_verified_and_then_both_are_compared(door: Door) -> None:
    report = await compare(door.url, door.url, "models.list", "compare.hello.chat")
    assert [len(target.findings) for target in report.targets] == [1, 1]
    assert report.comparison is not None and len(report.comparison.findings) == 1


async def test_trouble_of_the_second_server_is_not_lost(door: Door) -> None:
    with open_door(engine=engine_config(context_tokens=64)) as other:
        report = await compare(door.url, other.url, "compare.long.text")
    (found,) = report.findings
    assert found.status is Status.FAILED and "400" in found.problems[0]

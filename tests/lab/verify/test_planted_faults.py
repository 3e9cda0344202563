"""Whatever is planted into a good server's answers is found, by the check that is about it."""

import pytest

from steelyard.lab.mock.proxy import FAULTS, make_faults
from steelyard.lab.mock.proxy.faults import Fault
from steelyard.lab.verify import Status
from tests.gateway.doors import Door

from .conftest import behind, findings
from .planted_faults import FOUND_BY

PROXY_FAULTS_FOUND_BY = {
    "wrong_usage": "usage.completion.chat",
    "dropped_last_token": "streams.equal-whole.chat",
    "duplicated_chunk": "streams.equal-whole.text",
    "missing_done": "streams.form.chat",
    "wrong_finish_reason": "lengths.max-tokens.text",
    "ignored_stop": "stops.one.text",
    "ignored_max_tokens": "lengths.max-tokens.chat",
    "ignored_seed": "sampling.seed",
    "stream_text_differs": "streams.equal-whole.text",
    "wrong_error": "errors.malformed.chat",
    "wrong_model_name": "chat.shape",
    "wrong_logprobs": "logprobs.shape.chat",
    "truncated_context": "usage.grows.chat",
    "missing_content_type": "streams.form.text",
    "ignored_n": "sampling.choices",
}


@pytest.mark.parametrize("name", FAULTS)
async def test_each_fault_of_the_proxy_is_found(door: Door, name: str) -> None:
    check = PROXY_FAULTS_FOUND_BY[name]
    async with behind(door.url, *make_faults([name])) as url:
        found = await findings(url, check)
    assert found[check].status is Status.FAILED, found[check]


@pytest.mark.parametrize("fault", FOUND_BY, ids=lambda fault: fault.__name__)
async def test_each_other_fault_is_found(door: Door, fault: type[Fault]) -> None:
    check = FOUND_BY[fault]
    async with behind(door.url, fault()) as url:
        found = await findings(url, check)
    assert found[check].status is Status.FAILED, found[check]
    assert found[check].problems and found[check].evidence


@pytest.mark.parametrize("check", sorted({*FOUND_BY.values(), *PROXY_FAULTS_FOUND_BY.values()}))
async def test_without_a_fault_the_same_check_passes_through_the_proxy(
    door: Door, check: str
) -> None:
    async with behind(door.url) as url:
        found = await findings(url, check)
    assert found[check].status is Status.PASSED, found[check]

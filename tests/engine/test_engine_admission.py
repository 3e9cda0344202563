"""What the engine itself refuses, whatever a client managed to send past the door."""

import math

import msgspec
import pytest

from steelyard.contract.errors import InvalidRequest
from steelyard.engine.admission import MAX_LOGPROBS, MAX_STEERED_TOKENS, check_request
from tests.engine_processes import make_request

NAN = math.nan
INF = math.inf


def test_a_sound_request_passes() -> None:
    check_request(make_request(), vocab_size=256)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("min_tokens", -1),
        *[("temperature", value) for value in (-0.1, NAN, INF)],
        *[("top_k", value) for value in (-1, 2**31)],
        *[("top_p", value) for value in (0.0, 1.1, NAN)],
        *[("min_p", value) for value in (-0.1, 1.1, NAN)],
        *[("presence_penalty", value) for value in (NAN, INF)],
        *[("frequency_penalty", value) for value in (NAN, -INF)],
        *[("repetition_penalty", value) for value in (0.0, -1.0, NAN, INF)],
        *[("logprobs", value) for value in (-1, MAX_LOGPROBS + 1)],
        *[("logit_bias", value) for value in ({1: NAN}, {1: INF}, {256: 1.0}, {-1: 1.0})],
        ("logit_bias", dict.fromkeys(range(MAX_STEERED_TOKENS + 1), 1.0)),
        *[("stop_token_ids", value) for value in ((256,), (-1,), (1,) * (MAX_STEERED_TOKENS + 1))],
    ],
)
def test_sampling_values_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    request = make_request()
    sampling = msgspec.structs.replace(request.sampling, **{name: value})
    with pytest.raises(InvalidRequest) as raised:
        check_request(msgspec.structs.replace(request, sampling=sampling), vocab_size=256)
    assert raised.value.param == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request_id", ""),
        ("request_id", "x" * 257),
        ("prompt_ids", ()),
        ("prompt_ids", (1, 256)),
        ("prompt_ids", (-1,)),
        ("emitted_ids", (256,)),
        ("emitted_ids", (1,) * 8),
        ("deadline_s", NAN),
    ],
)
def test_request_values_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    request = msgspec.structs.replace(make_request(max_tokens=8), **{name: value})
    with pytest.raises(InvalidRequest) as raised:
        check_request(request, vocab_size=256)
    assert raised.value.param == name

"""Answers of both endpoints, whole or streamed, are read into one shape; others are malformed."""

import json
from typing import Any

import pytest

from steelyard.lab.verify.answers import Malformed
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.exchange import Exchange, HttpRequest, Piece
from steelyard.lab.verify.http_answer import AnswerHead
from steelyard.lab.verify.reading import read_answer, read_stream

HEAD: dict[str, Any] = {"id": "x", "object": "o", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def exchange(*parts: str) -> Exchange:
    pieces = tuple(Piece(part.encode(), float(at)) for at, part in enumerate(parts))
    return Exchange(HttpRequest("POST", "/x"), AnswerHead(200, True, ()), pieces, (), 1.0)


def whole(endpoint: Endpoint, choice: dict[str, Any], **more: Any):  # type: ignore[no-untyped-def]
    body = {**HEAD, "choices": [{"index": 0, **choice}], "usage": USAGE, **more}
    return read_answer(endpoint, exchange(json.dumps(body)))


def stream(endpoint: Endpoint, *choices: dict[str, Any]):  # type: ignore[no-untyped-def]
    events = [f"data: {json.dumps({**HEAD, 'choices': [one]})}\n\n" for one in choices]
    return read_stream(endpoint, exchange(*events, "data: [DONE]\n\n"))


def test_thoughts_and_text_are_both_what_the_model_said() -> None:
    message = {"role": "assistant", "content": "4", "reasoning_content": "2+2… "}
    answer = whole(Endpoint.CHAT, {"message": message, "finish_reason": "stop"})
    assert (answer.text, answer.choice.content) == ("2+2… 4", "4")
    assert answer.counts.total_tokens == 3


def test_a_stream_is_the_sum_of_its_chunks() -> None:
    answer = stream(
        Endpoint.CHAT,
        {"index": 0, "delta": {"role": "assistant", "content": ""}},
        {"index": 1, "delta": {"role": "assistant", "content": "B"}},
        {"index": 0, "delta": {"content": "A"}},
        {"index": 0, "delta": {"content": "a"}, "finish_reason": "length"},
        {"index": 1, "delta": {}, "finish_reason": "stop"},
    )
    assert [(c.index, c.text, c.finish_reason) for c in answer.choices] == [
        (0, "Aa", "length"),
        (1, "B", "stop"),
    ]
    assert answer.ends_with_done and answer.usage is None


def test_log_probabilities_of_both_shapes_become_tokens() -> None:
    top = [{"token": "a", "logprob": -0.1, "bytes": [97]}]
    entry = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": top}
    chat = whole(
        Endpoint.CHAT, {"message": {"content": "a"}, "logprobs": {"content": [entry]}}
    ).choice
    text = whole(
        Endpoint.TEXT,
        {
            "text": "a",
            "logprobs": {
                "tokens": ["a"],
                "token_logprobs": [-0.1],
                "top_logprobs": [{"a": -0.1}],
                "text_offset": [0],
            },
        },
    ).choice
    strange = whole(Endpoint.TEXT, {"text": "a", "logprobs": {"content": [entry]}}).choice
    for choice in (chat, text, strange):
        assert choice.tokens is not None
        (token,) = choice.tokens
        assert (token.text, token.logprob, token.top) == ("a", -0.1, (("a", -0.1),))
    assert [c.has_chat_logprobs for c in (chat, text, strange)] == [True, False, True]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("no json", "no JSON"),
        ("[]", "object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"id": "x"}', "missing required field"),
        (json.dumps({**HEAD, "choices": [{"index": "0", "text": "a"}]}), "choices[0].index"),
        (json.dumps({**HEAD, "choices": [{"index": 0, "text": None}]}), "choices[0].text"),
        (json.dumps({**HEAD, "choices": [], "usage": {"prompt_tokens": 1}}), "$.usage"),
        (
            json.dumps(
                {
                    **HEAD,
                    "choices": [
                        {
                            "index": 0,
                            "text": "a",
                            "logprobs": {"tokens": ["a"], "token_logprobs": []},
                        }
                    ],
                }
            ),
            "different lengths",
        ),
    ],
)
def test_what_clients_could_not_read_is_malformed_and_says_where(body: str, where: str) -> None:
    with pytest.raises(Malformed) as caught:
        read_answer(Endpoint.TEXT, exchange(body))
    assert where in str(caught.value)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "no events"),
        ("data: {\n\n", "no JSON"),
        ("data: " + "[" * 100_000 + "\n\n", "no JSON"),
        ('data: {"error": {"message": "out of memory"}}\n\n', "out of memory"),
        ("data: [DONE]\n\n", "no events"),
    ],
)
def test_a_stream_without_an_answer_is_malformed(body: str, why: str) -> None:
    with pytest.raises(Malformed) as caught:
        read_stream(Endpoint.CHAT, exchange(body))
    assert why in str(caught.value)


def test_an_answer_without_choices_or_usage_says_so_when_asked() -> None:
    answer = read_answer(Endpoint.TEXT, exchange(json.dumps({**HEAD, "choices": []})))
    with pytest.raises(Malformed, match="choices is empty"):
        _ = answer.text
    with pytest.raises(Malformed, match="usage is missing"):
        _ = answer.counts

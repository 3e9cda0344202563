"""The official Python client is the acceptance client."""

import openai
import pytest

from steelyard.backends.fake import Fault, FaultKind

from .doors import Door

MESSAGES = [{"role": "user", "content": "Say something."}]


@pytest.fixture
def client(door: Door):
    with openai.OpenAI(base_url=f"{door.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def async_client(door: Door):
    return openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="none", max_retries=0)


def expected_text(door: Door, index: int = 0) -> str:
    requests = {int(r.request_id.rpartition("-")[2]): r for r in door.engine.recent_requests}
    return bytes(i for i in door.engine.expected_ids(requests[index]) if i < 256).decode()


def test_a_chat_answer_is_the_engines_text(door: Door, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=12)
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content == expected_text(door)
    assert choice.finish_reason == "length"
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_a_streamed_chat_says_the_same_as_a_complete_one(client: openai.OpenAI) -> None:
    ask = {"model": "fake", "messages": MESSAGES, "max_tokens": 20, "temperature": 0}
    whole = client.chat.completions.create(**ask)
    parts = list(
        client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    assert text == whole.choices[0].message.content
    assert parts[0].choices[0].delta.role == "assistant"
    assert [p.choices[0].finish_reason for p in parts if p.choices][-1] == "length"
    assert [p.usage for p in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1].choices == []
    assert parts[-1].usage.completion_tokens == 20
    assert len({p.id for p in parts}) == 1


def test_a_completion_takes_text_and_returns_text(door: Door, client: openai.OpenAI) -> None:
    answer = client.completions.create(model="fake", prompt="Once", max_tokens=7, echo=True)
    assert answer.choices[0].text == "Once" + expected_text(door)
    assert answer.object == "text_completion"


def test_several_prompts_and_choices_are_numbered_prompt_by_prompt(client: openai.OpenAI) -> None:
    ask = {"model": "fake", "max_tokens": 6, "seed": 7, "temperature": 1.0}
    both = client.completions.create(prompt=["one", "two"], n=2, **ask)
    assert [c.index for c in both.choices] == [0, 1, 2, 3]
    first = client.completions.create(prompt="one", n=2, **ask)
    second = client.completions.create(prompt="two", n=2, **ask)
    assert [c.text for c in both.choices] == [c.text for c in (*first.choices, *second.choices)]
    assert len({c.text for c in both.choices}) == 4
    assert both.usage.prompt_tokens == first.usage.prompt_tokens + second.usage.prompt_tokens
    assert both.usage.completion_tokens == 24


def test_token_ids_are_taken_as_they_are(door: Door, client: openai.OpenAI) -> None:
    client.completions.create(model="fake", prompt=[104, 105], max_tokens=1)
    assert door.engine.recent_requests[-1].prompt_ids == (104, 105)
    client.completions.create(model="fake", prompt=[[104], [105, 106]], max_tokens=1)
    assert [r.prompt_ids for r in door.engine.recent_requests][-2:] == [(104,), (105, 106)]


def test_streamed_choices_can_be_told_apart(client: openai.OpenAI) -> None:
    ask = {"model": "fake", "messages": MESSAGES, "n": 3, "max_tokens": 9, "seed": 1}
    whole = client.chat.completions.create(**ask)
    texts = {0: "", 1: "", 2: ""}
    for part in client.chat.completions.create(**ask, stream=True):
        for choice in part.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {c.index: c.message.content for c in whole.choices}
    assert len(set(texts.values())) == 3


def test_chat_logprobs_have_openais_shape(client: openai.OpenAI) -> None:
    ask = {"model": "fake", "messages": MESSAGES, "max_tokens": 3, "seed": 5}
    answer = client.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
    choice = answer.choices[0]
    assert len(choice.logprobs.content) == 3
    for token in choice.logprobs.content:
        assert token.bytes == list(token.token.encode())
        assert token.top_logprobs[0].token == token.token
        assert len(token.top_logprobs) == 2
        assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
    assert "".join(t.token for t in choice.logprobs.content) == choice.message.content
    parts = client.chat.completions.create(**ask, logprobs=True, stream=True)
    streamed = [t for p in parts for t in (p.choices[0].logprobs or _Nothing).content]
    assert [t.token for t in streamed] == [t.token for t in choice.logprobs.content]


def test_completion_logprobs_have_openais_shape(client: openai.OpenAI) -> None:
    ask = {"model": "fake", "prompt": "x", "max_tokens": 4, "temperature": 0}
    lists = client.completions.create(**ask, logprobs=2).choices[0].logprobs
    assert lists.text_offset == [0, 1, 2, 3]
    assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == 4
    assert all(lists.tokens[i] in lists.top_logprobs[i] for i in range(4))
    offsets: list[int] = []
    for part in client.completions.create(**ask, logprobs=2, stream=True):
        if part.choices[0].logprobs:
            offsets += part.choices[0].logprobs.text_offset
    assert offsets == [0, 1, 2, 3]


def test_vllms_extra_parameters_reach_the_engine(door: Door, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="fake",
        messages=MESSAGES,
        max_completion_tokens=5,
        temperature=0.3,
        top_p=0.9,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        seed=11,
        logit_bias={"97": -5},
        user="someone",
        metadata={"a": "b"},
        extra_body={
            "top_k": 5,
            "min_p": 0.1,
            "repetition_penalty": 1.2,
            "stop_token_ids": [3],
            "ignore_eos": True,
            "min_tokens": 2,
            "priority": -3,
        },
    )
    request = door.engine.recent_requests[-1]
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.seed) == (5, 2, 11)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.3, 0.9, 5)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.1, 1.2)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, -0.5)
    assert sampling.logit_bias == {97: -5.0}
    assert sampling.stop_token_ids == (3,)
    assert sampling.ignore_eos
    assert request.priority == -3


def test_requests_without_a_seed_differ(door: Door, client: openai.OpenAI) -> None:
    for _ in range(2):
        client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=1)
    first, second = (r.sampling.seed for r in door.engine.recent_requests)
    assert first != second


def test_errors_become_the_clients_own_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="other", messages=MESSAGES)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="fake", messages=MESSAGES, temperature=9)
    assert wrong.value.param == "temperature"


def test_an_error_in_a_stream_reaches_the_client(door: Door, client: openai.OpenAI) -> None:
    door.engine.inject(Fault(FaultKind.DROP, after_tokens=3))
    stream = client.chat.completions.create(
        model="fake", messages=MESSAGES, max_tokens=9, stream=True
    )
    text = ""
    with pytest.raises(openai.APIError) as lost:
        for part in stream:
            text += part.choices[0].delta.content or ""
    assert len(text) == 3
    assert lost.value.code == "engine_lost"


def test_the_raw_answer_carries_the_clients_request_id(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="fake", messages=MESSAGES, max_tokens=1, extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.parse().choices[0].finish_reason == "length"


def test_models_can_be_listed_and_looked_up(client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").owned_by == "steelyard"


async def test_the_asynchronous_client_streams_and_collects(
    async_client: openai.AsyncOpenAI,
) -> None:
    ask = {"model": "fake", "messages": MESSAGES, "max_tokens": 8, "temperature": 0}
    whole = await async_client.chat.completions.create(**ask)
    text = ""
    async for part in await async_client.chat.completions.create(**ask, stream=True):
        text += part.choices[0].delta.content or ""
    assert text == whole.choices[0].message.content
    await async_client.close()


class _Nothing:
    content: tuple = ()

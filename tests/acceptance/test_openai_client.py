"""The official OpenAI client against a real model."""

import asyncio

import openai
import pytest

from .conftest import MODEL, Service

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(service: Service) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0)


def test_models_are_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == MODEL
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


def test_a_chat_answers_in_words(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=24
    )
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content and choice.message.content.isprintable()
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 1 <= answer.usage.completion_tokens <= 24


def test_a_stream_says_the_same_as_the_whole_answer(client: openai.OpenAI) -> None:
    wishes = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 40}
    whole = client.chat.completions.create(**wishes)
    chunks = list(
        client.chat.completions.create(
            **wishes, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage.model_copy(
        update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details}
    )
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == whole.choices[0].finish_reason
    assert set(reasons[:-1]) == {None}
    assert len(chunks) > 5, "token by token"


async def test_the_asynchronous_client_streams_many_answers_at_once(service: Service) -> None:
    async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none") as client:

        async def ask(number: int) -> str:
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": f"Count to {number}."}],
                temperature=0,
                max_tokens=16,
                stream=True,
            )
            return "".join([c.choices[0].delta.content or "" async for c in stream])

        together = await asyncio.gather(*(ask(number) for number in range(8)))
        assert all(together)
        assert await ask(5) == together[5], "company changes nothing"


def test_several_choices_differ_and_are_numbered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, n=2, temperature=1.2, seed=3, max_tokens=16
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    first, second = (choice.message.content for choice in answer.choices)
    assert first != second
    assert answer.usage is not None and answer.usage.completion_tokens <= 32


def test_equal_seeds_draw_equal_answers(client: openai.OpenAI) -> None:
    def ask(seed: int) -> str | None:
        answer = client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=1.5, seed=seed, max_tokens=20
        )
        return answer.choices[0].message.content

    assert ask(7) == ask(7) != ask(8)


def test_a_stop_string_ends_the_answer_before_it(client: openai.OpenAI) -> None:
    wishes = {"model": MODEL, "prompt": "1, 2, 3, 4, 5,", "temperature": 0, "max_tokens": 30}
    free = client.completions.create(**wishes).choices[0]
    assert "8" in free.text
    stopped = client.completions.create(**wishes, stop=["8"]).choices[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == free.text.partition("8")[0]


def test_log_probabilities_are_those_of_the_tokens(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, max_tokens=8, logprobs=True, top_logprobs=3
    )
    (choice,) = answer.choices
    assert choice.logprobs is not None and choice.logprobs.content is not None
    assert answer.usage is not None
    assert len(choice.logprobs.content) == answer.usage.completion_tokens
    for token in choice.logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob <= 0, "greedy takes the likeliest"
        ordered = [other.logprob for other in token.top_logprobs]
        assert ordered == sorted(ordered, reverse=True)
    spelled = b"".join(bytes(token.bytes or ()) for token in choice.logprobs.content)
    assert spelled.decode().startswith(choice.message.content or "?")


def test_text_and_its_tokens_are_continued_alike(client: openai.OpenAI, service: Service) -> None:
    text = "The first president of the United States was"
    _, tokens = service.ask("/tokenize", {"model": MODEL, "prompt": text})
    wishes = {"model": MODEL, "temperature": 0, "max_tokens": 12}
    from_text = client.completions.create(prompt=text, **wishes)
    from_ids = client.completions.create(prompt=tokens["tokens"], **wishes)
    assert from_text.choices[0].text == from_ids.choices[0].text != ""
    assert from_text.usage is not None and from_ids.usage is not None
    assert from_text.usage.prompt_tokens == from_ids.usage.prompt_tokens == tokens["count"]


def test_a_prompt_beyond_the_context_is_refused_with_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=MODEL, prompt=[5] * 2_100, max_tokens=10)
    assert refused.value.code == "context_length_exceeded"
    assert "2048" in refused.value.message and "2100" in refused.value.message

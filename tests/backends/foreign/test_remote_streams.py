"""Streams of OpenAI-compatible endpoints: tokens, texts, ends, continuations."""

from collections.abc import AsyncIterator

import pytest

from steelyard.contract.errors import (
    EngineFailed,
    EngineLost,
    UnsupportedFeature,
)

from .stage import (
    END_ID,
    ask,
    breaking,
    collect,
    completing,
    connected,
    event,
    sending,
    staged,
    text_of,
    token,
    usage,
)

DONE = event("[DONE]")
ABC = (token(97), token(98), token(99, "length"), usage(2, 3, cached=1), DONE)


async def test_tokens_come_as_they_are_sent_and_usage_with_the_last() -> None:
    async with staged(sending(*ABC)) as stage, connected(stage.url) as engine:
        chunks = await collect(engine, ask())
    assert [chunk.start for chunk in chunks] == [0, 1, 2]
    assert text_of(chunks) == "abc"
    last = chunks[-1]
    assert last.finish_reason == "length"
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (2, 3)
    assert last.usage.cached_tokens == 1


async def test_the_endpoint_is_told_everything_that_shapes_the_answer() -> None:
    async with staged(sending(*ABC)) as stage, connected(stage.url) as engine:
        await collect(engine, ask(seed=7, top_k=5, logit_bias={65: 1.5}, ignore_eos=True))
    (asked,) = stage.asked
    assert asked["prompt"] == list(b"Hi")
    assert asked["return_token_ids"] is True
    assert (asked["seed"], asked["top_k"], asked["top_p"]) == (7, 5, 1.0)
    assert asked["logit_bias"] == {"65": 1.5}
    assert asked["ignore_eos"] is True


async def test_a_continued_stream_asks_for_what_is_left_after_what_was_emitted() -> None:
    rest = (token(99, "length"), usage(4, 1), DONE)
    async with staged(sending(*rest)) as stage, connected(stage.url) as engine:
        chunks = await collect(engine, ask(emitted="ab", seed=7, min_tokens=3))
    (asked,) = stage.asked
    assert asked["prompt"] == list(b"Hiab")
    assert (asked["max_tokens"], asked["min_tokens"]) == (1, 1)
    assert asked["seed"] != 7, "the numbers of its beginning must not be drawn again"
    assert [chunk.start for chunk in chunks] == [2]
    assert chunks[0].usage is not None
    assert (chunks[0].usage.prompt_tokens, chunks[0].usage.completion_tokens) == (2, 3)


async def test_the_token_that_ended_a_stream_is_named() -> None:
    pieces = (token(97), token(END_ID, "stop"), DONE)
    async with staged(sending(*pieces)) as stage, connected(stage.url) as engine:
        chunks = await collect(engine, ask())
    assert chunks[-1].stop_token_id == END_ID
    assert chunks[-1].finish_reason == "stop"


async def test_log_probabilities_come_by_token_id() -> None:
    values = {
        "tokens": ["token_id:97"],
        "token_logprobs": [-0.25],
        "top_logprobs": [{"token_id:97": -0.25, "token_id:98": -1.5, "token_id:99": -3.0}],
    }
    pieces = (token(97, "length", logprobs=values), DONE)
    async with staged(sending(*pieces)) as stage, connected(stage.url) as engine:
        (chunk,) = await collect(engine, ask(logprobs=2))
    assert chunk.logprobs is not None
    assert chunk.logprobs[0].logprob == -0.25
    assert chunk.logprobs[0].top_ids == (97, 98)
    assert stage.asked[0]["return_tokens_as_token_ids"] is True


@pytest.mark.parametrize("chunk_bytes", [1, 3, 7])
async def test_events_may_be_cut_anywhere(chunk_bytes: int) -> None:
    data = b": keep awake\n\n" + b"".join(ABC).replace(b"\n", b"\r\n")
    pieces = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    async with staged(sending(*pieces)) as stage, connected(stage.url) as engine:
        assert text_of(await collect(engine, ask())) == "abc"


async def test_a_stream_that_breaks_is_lost_after_what_had_come() -> None:
    play = sending(token(97), token(98), then=breaking)
    async with staged(play) as stage, connected(stage.url) as engine:
        await expect_after(engine.generate(ask()), "ab", EngineLost)


async def test_a_stream_without_a_finish_reason_is_no_complete_answer() -> None:
    async with staged(sending(token(97), DONE)) as stage, connected(stage.url) as engine:
        await expect_after(engine.generate(ask()), "a", EngineLost)


async def test_an_error_within_a_stream_is_an_error() -> None:
    trouble = event({"error": {"message": "CUDA out of memory", "code": 500}})
    async with staged(sending(token(97), trouble, DONE)) as stage, connected(stage.url) as engine:
        await expect_after(engine.generate(ask()), "a", EngineFailed)


async def test_more_tokens_than_asked_for_are_refused() -> None:
    pieces = [token(97)] * 4
    async with staged(sending(*pieces)) as stage, connected(stage.url) as engine:
        await expect_after(engine.generate(ask()), "aaa", EngineFailed)


async def test_tokens_that_the_vocabulary_does_not_have_are_refused() -> None:
    async with staged(sending(token(97), token(5000))) as stage, connected(stage.url) as engine:
        await expect_after(engine.generate(ask()), "a", EngineFailed)


async def test_what_is_no_event_is_refused() -> None:
    async with staged(sending(b"data: <html>\n\n")) as stage, connected(stage.url) as engine:
        await expect_after(engine.generate(ask()), "", EngineFailed)


async def test_an_endless_event_is_refused() -> None:
    play = sending(b"data: " + b"x" * 5000)
    async with staged(play) as stage, connected(stage.url, max_event_bytes=4096) as engine:
        await expect_after(engine.generate(ask()), "", EngineFailed)


# Endpoints that only speak text.


async def text_probe(stage, request, body):
    """As `completing`, but knows no ids in answers."""
    return await completing(stage, request, {"prompt": body["prompt"]})


def said(text: str, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish}]})


async def test_text_is_served_as_the_tokens_it_is_made_of() -> None:
    play = sending(said("Grüß"), said(" dich", "stop"), usage(2, 3), DONE)
    async with staged(play, probe=text_probe) as stage, connected(stage.url) as engine:
        assert engine.info.can_continue is False
        assert engine.info.details["mode"] == "text"
        chunks = await collect(engine, ask())
    assert bytes(i for chunk in chunks for i in chunk.token_ids).decode() == "Grüß dich"
    assert chunks[-1].finish_reason == "stop"
    assert chunks[-1].stop_token_id is None
    assert stage.asked[0]["prompt"] == list(b"Hi"), "a prompt of ids stays exact"


async def test_an_endpoint_that_takes_no_ids_is_sent_text() -> None:
    async def refusing_ids(stage, request, body):
        if isinstance(body["prompt"], list):
            from aiohttp import web

            return web.json_response({"error": {"message": "prompt must be text"}}, status=400)
        return await completing(stage, request, body)

    play = sending(said("ok", "stop"), DONE)
    async with staged(play, probe=refusing_ids) as stage, connected(stage.url) as engine:
        await collect(engine, ask())
    assert stage.asked[0]["prompt"] == "Hi"


async def test_a_text_stream_cannot_be_continued() -> None:
    async with staged(sending(), probe=text_probe) as stage, connected(stage.url) as engine:
        with pytest.raises(UnsupportedFeature):
            await collect(engine, ask(emitted="a"))
    assert not stage.asked


@pytest.mark.parametrize(
    "sampling",
    [{"logprobs": 1}, {"stop_token_ids": (5,)}, {"min_tokens": 2}, {"logit_bias": {5: 1.0}}],
)
async def test_what_needs_token_ids_is_refused_where_there_are_none(sampling) -> None:
    async with staged(sending(), probe=text_probe) as stage, connected(stage.url) as engine:
        with pytest.raises(UnsupportedFeature) as refusal:
            await collect(engine, ask(**sampling))
    assert refusal.value.param in sampling
    assert not stage.asked


async def expect_after(chunks: AsyncIterator, text: str, error: type[Exception]) -> None:
    """`chunks` must bring `text`, and then fail."""
    seen = []
    with pytest.raises(error):
        async for chunk in chunks:
            seen.append(chunk)
    assert text_of(seen) == text

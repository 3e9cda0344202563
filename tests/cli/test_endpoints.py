"""`steelyard serve` in front of endpoints that others run: here, other services of ours."""

import json
import signal

import pytest

from .stage import REAL, Command, Stage, ask, wait_for

FIELDS = {
    "model": "tiny",
    "prompt": "hello",
    "max_tokens": 10,
    "ignore_eos": True,
    "temperature": 0,
}
LONG = 100


def endpoint(stage: Stage, *arguments: str) -> Command:
    return stage.serve("--set", "served_name=inner", *arguments)


def front(stage: Stage, *endpoints: Command, **options: str) -> Command:
    urls = [f"http://127.0.0.1:{each.port}/v1" for each in endpoints]
    settings = {"backend": "remote", "remote.url": urls[0], "failover.probe_s": "0.5", **options}
    if len(urls) > 1:
        settings["remote.more_urls"] = json.dumps(urls[1:])
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return stage.serve(*sets)


def answer(service: Command, model: str = "tiny", **fields: object) -> dict:
    status, body = service.ask("/v1/completions", FIELDS | {"model": model, **fields})
    assert status == 200, body
    return body


def test_an_endpoint_answers_through_our_door_as_it_would_itself(stage: Stage) -> None:
    inner = endpoint(stage)
    outer = front(stage, inner)
    outer.await_stderr("inner at http://127.0.0.1:")
    outer.await_stderr("in tokens mode")
    own, through = answer(inner, "inner"), answer(outer)
    assert own["choices"][0]["text"] == through["choices"][0]["text"]
    assert own["usage"] == through["usage"]
    *_, usage, done = outer.stream(stream_options={"include_usage": True})
    assert usage["usage"]["completion_tokens"] == 10
    assert done == "[DONE]"
    assert outer.stop() == 0
    assert inner.is_ready(), "it goes on for others"


def test_streams_go_on_at_another_endpoint_when_one_is_killed(stage: Stage) -> None:
    stage.fake_model(step_s=0.005)
    inner = [endpoint(stage), endpoint(stage)]
    outer = front(stage, *inner)
    fields = {"max_tokens": LONG, "return_token_ids": True, "temperature": 0}
    streams = [outer.stream(**fields) for _ in range(4)]
    began = [tokens_of(stream.first()) for stream in streams]
    inner[0].send(signal.SIGKILL)
    for ids, stream in zip(began, streams, strict=True):
        *events, done = stream
        assert done == "[DONE]"
        # Which tokens they are, made-up engines decide by the prompt alone, and a continued stream
        # has a longer one: `tests/backends/foreign/test_failover.py` compares them.
        assert len(ids) + sum(len(tokens_of(event)) for event in events) == LONG
    assert outer.is_ready()
    assert len(answer(outer, **fields)["choices"][0]["token_ids"]) == LONG


def tokens_of(event: dict) -> list[int]:
    return event["choices"][0].get("token_ids", [])


@pytest.mark.slow
def test_a_client_that_hangs_up_is_noticed_by_the_endpoint(stage: Stage) -> None:
    stage.fake_model(step_s=0.01)
    inner = endpoint(stage)
    outer = front(stage, inner)
    stream = outer.stream(max_tokens=LONG)
    stream.first()
    stream.close()
    wait_for(lambda: _aborted(inner) == 1)


@pytest.mark.slow
def test_an_endpoint_that_was_lost_is_found_again(stage: Stage) -> None:
    inner = endpoint(stage)
    port = inner.port
    outer = front(stage, inner)
    assert outer.is_ready()
    inner.send(signal.SIGKILL)
    inner.wait()
    wait_for(lambda: not outer.is_ready())
    status, body = outer.ask("/v1/completions", {"model": "tiny", "prompt": "hello"})
    assert status == 503, body
    stage.start("serve", str(stage.model), "--port", str(port), "--set", "served_name=inner")
    wait_for(outer.is_ready)
    answer(outer)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("remote.model=other",), ("remote.model", "it serves inner")),
        pytest.param(
            ("remote.api_key_file=/nowhere",),
            ("remote.api_key_file", "cannot be read"),
            marks=pytest.mark.slow,
        ),
        pytest.param(("remote.ca_file=/nowhere",), ("remote.ca_file",), marks=pytest.mark.slow),
    ],
)
def test_what_can_never_work_ends_the_start_at_once(
    stage: Stage, settings: tuple[str, ...], words: tuple[str, ...]
) -> None:
    inner = endpoint(stage)
    url = f"remote.url=http://127.0.0.1:{inner.port}"
    sets = [part for each in ("backend=remote", url, *settings) for part in ("--set", each)]
    outer = stage.serve(*sets)
    assert outer.wait() == 1
    for word in words:
        assert word in outer.stderr
    assert "Traceback" not in outer.stderr


@pytest.mark.slow
def test_the_mock_is_an_endpoint_too(stage: Stage) -> None:
    mock = stage.start("mock", "--port", "0", "--model", "tiny", program=REAL)
    wait_for(lambda: "http://" in mock.stdout + mock.stderr)
    text = mock.stdout + mock.stderr
    port = int(text.partition("http://127.0.0.1:")[2].partition("/")[0].split()[0])
    url = f"remote.url=http://127.0.0.1:{port}"
    # Its words are not those of the tiny model's vocabulary: their text is.
    outer = stage.serve("--set", "backend=remote", "--set", url, "--set", "remote.mode=text")
    outer.await_stderr("in text mode")
    own, through = ask(port, "/v1/completions", FIELDS), answer(outer)
    assert through["choices"][0]["text"] == own[1]["choices"][0]["text"]


@pytest.mark.parametrize("section", ["vllm", pytest.param("sglang", marks=pytest.mark.slow)])
def test_a_server_that_cannot_be_started_says_why(stage: Stage, section: str) -> None:
    folder = stage.folder / "model"
    sets = (f"backend={section}", f"{section}.python=/nowhere/python", f"{section}.model={folder}")
    outer = stage.serve(*[part for each in sets for part in ("--set", each)])
    assert outer.wait() == 1
    assert "/nowhere/python" in outer.stderr
    assert "Traceback" not in outer.stderr


def test_a_gguf_file_is_not_given_to_servers_that_do_not_read_it(stage: Stage) -> None:
    python = stage.folder / "python"
    outer = stage.serve("--set", "backend=vllm", "--set", f"vllm.python={python}")
    assert outer.wait() == 1
    assert "vllm.model" in outer.stderr
    assert "GGUF" in outer.stderr


def _aborted(service: Command) -> float:
    _, page = service.ask("/metrics")
    counts = [line for line in page.splitlines() if 'outcome="aborted"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in counts if "engine_requests" in line)

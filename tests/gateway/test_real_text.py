"""The door with a real tokenizer and chat template."""

import threading
import time
from pathlib import Path

import pytest

from steelyard.backends.fake import FakeEngineConfig
from steelyard.checkpoints import open_checkpoint
from steelyard.text import TextModel, open_text_model

from .doors import open_door
from .wire import events, get, post

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def text(smollm2_path: Path) -> TextModel:
    return open_text_model(open_checkpoint(smollm2_path))


def engine(text: TextModel, **changes: int) -> FakeEngineConfig:
    defaults = {"vocab_size": text.vocab_size, "context_tokens": 8192}
    return FakeEngineConfig(end_token_ids=text.end_token_ids, **defaults | changes)


def test_streamed_text_is_the_decoded_text_whatever_the_tokens(text: TextModel) -> None:
    ask = {"model": "fake", "messages": [{"role": "user", "content": "Größe?"}], "seed": 4}
    ask |= {"max_tokens": 300}
    with open_door(engine=engine(text), text=text) as door:
        whole = post(door, CHAT, ask).json["choices"][0]["message"]["content"]
        streamed = "".join(
            choice["delta"].get("content", "")
            for event in events(post(door, CHAT, ask | {"stream": True}).body)
            if event != "[DONE]"
            for choice in event["choices"]
        )
        asked = door.engine.recent_requests[-1]
        assert whole == streamed == text.decode(door.engine.expected_ids(asked))
        prompt = text.decode(asked.prompt_ids, skip_special_tokens=False)
        assert prompt.endswith("<|im_start|>user\nGröße?<|im_end|>\n<|im_start|>assistant\n")


def test_tokenising_a_hundred_thousand_tokens_does_not_stop_the_others(text: TextModel) -> None:
    content = "The quick brown fox jumps over the lazy dog. " * 10_000
    long = {"model": "fake", "messages": [{"role": "user", "content": content}], "max_tokens": 1}
    with open_door(engine=engine(text, context_tokens=200_000), text=text) as door:
        waiting = threading.Thread(target=post, args=(door, CHAT, long))
        waiting.start()
        slowest_s = 0.0
        while waiting.is_alive():
            start_s = time.monotonic()
            assert get(door, "/health").status == 200
            slowest_s = max(slowest_s, time.monotonic() - start_s)
        assert len(door.engine.recent_requests[-1].prompt_ids) > 100_000
        assert slowest_s < 0.25, "the event loop stood still"

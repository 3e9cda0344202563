"""Long prompts are tokenised without making others wait."""

import threading
import time
from typing import Any

from steelyard.gateway.config import GatewayConfig, RequestLimits
from steelyard.gateway.generation.prompts import PromptEncoder, TextPrompt

from .byte_text import VOCAB_SIZE, ByteText
from .conftest import OpenDoor
from .wire import post


class SlowText(ByteText):
    """Takes its time for long texts, and remembers where it did."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def encode(self, text: str, **more: Any) -> list[int]:
        self.threads.append(threading.current_thread())
        if len(text) > 100:
            time.sleep(0.2)
        return super().encode(text, **more)


async def test_only_long_prompts_go_to_a_thread() -> None:
    text, encoder = SlowText(), PromptEncoder(inline_chars=100)
    await encoder.encode([TextPrompt("short")], text, VOCAB_SIZE)
    ids = await encoder.encode([TextPrompt("x" * 101), TextPrompt("y")], text, VOCAB_SIZE)
    assert ids[1] == (257, ord("y"))
    here = threading.current_thread()
    assert [thread is here for thread in text.threads] == [True, False, False]
    encoder.close()


def test_a_long_prompt_arrives_as_it_was_sent(make_door: OpenDoor) -> None:
    limits = RequestLimits(inline_prompt_chars=1000)
    door = make_door(GatewayConfig(port=0, requests=limits), context_tokens=200_000)
    content = "word " * 20_000
    body = {"model": "fake", "messages": [{"role": "user", "content": content}], "max_tokens": 1}
    assert post(door, "/v1/chat/completions", body).status == 200
    ids = door.engine.recent_requests[-1].prompt_ids
    assert content.encode() in bytes(i for i in ids if i < 256)

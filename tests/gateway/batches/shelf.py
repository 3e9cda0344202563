"""What tests of batches put in and take out."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai

from steelyard.gateway.batches.config import BatchesConfig
from steelyard.gateway.config import GatewayConfig

from ..doors import Door

__all__ = ["CHAT", "TEXT", "batching", "chat_line", "client_of", "created", "ended", "results"]

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def batching(folder: Path, config: GatewayConfig | None = None, **limits: Any) -> GatewayConfig:
    """Settings of a door that keeps batches there."""
    config = config or GatewayConfig(port=0)
    return replace(config, batches=BatchesConfig(folder=folder, **limits))


def client_of(door: Door, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{door.url}/v1", api_key=key, max_retries=0)


def chat_line(custom_id: str, url: str = CHAT, **body: Any) -> dict[str, Any]:
    """A line that works, unless `body` says otherwise."""
    whole = {
        "model": "fake",
        "messages": [{"role": "user", "content": f"This is {custom_id}."}],
        "max_tokens": 5,
    }
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": whole | body}


def created(client: openai.OpenAI, lines: list[Any], endpoint: Any = CHAT) -> Any:
    """A batch of these lines."""
    content = "\n".join(json.dumps(line) for line in lines).encode()
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")


def ended(client: openai.OpenAI, batch_id: str, timeout_s: float = 10.0) -> Any:
    """The batch, once it has ended."""
    end_s = time.monotonic() + timeout_s
    while True:
        batch = client.batches.retrieve(batch_id)
        if batch.status not in ("validating", "in_progress", "cancelling"):
            return batch
        assert time.monotonic() < end_s, batch
        time.sleep(0.01)


def results(client: openai.OpenAI, file_id: str) -> list[Any]:
    """Lines of an output or error file."""
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]

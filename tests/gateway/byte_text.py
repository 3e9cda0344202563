"""A text model of bytes: token i is the byte i, four more ids are special.

Enough to follow every byte from request to answer by eye, and shared by all tests of the door.
"""

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.contract.errors import InvalidRequest

__all__ = ["BEGIN_ID", "END_ID", "VOCAB_SIZE", "ByteText"]

END_ID = 256
BEGIN_ID = 257
TURN_ID = 258
VOCAB_SIZE = 260


class ByteStream:
    """Bytes to text, incomplete characters held back."""

    def __init__(self, skip_special_tokens: bool) -> None:
        self._skips = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Sequence[int]) -> str:
        return self._decoder.decode(b"".join(_bytes(i, self._skips) for i in token_ids))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteText:
    """`gateway.ports.TextModel`."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return [*([BEGIN_ID] if add_special_tokens else []), *text.encode()]

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> list[int]:
        ids: list[int] = []
        for message in messages:
            if message["role"] == "assistant" and not ids:
                raise InvalidRequest("a conversation cannot begin with the assistant")
            ids += f"{message['role']}:{message['content']}".encode()
            ids.append(TURN_ID)
        if continue_final_message:
            return ids[:-1]
        return [*ids, *b"assistant:"] if add_generation_prompt else ids

    def decode(self, token_ids: Sequence[int]) -> str:
        stream = self.stream()
        return stream.push(token_ids) + stream.flush()

    def stream(self, *, skip_special_tokens: bool = True) -> ByteStream:
        return ByteStream(skip_special_tokens)

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return _bytes(token_id, skip=False)


def _bytes(token_id: int, skip: bool) -> bytes:
    if token_id < 256:
        return bytes([token_id])
    return b"" if skip else f"<{token_id}>".encode()

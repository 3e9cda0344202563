"""The least a client can do: send a request on schedule, throw away what comes back.

A load for measuring the mock itself; measures nothing, decodes nothing. Run as a process of its
own: `python benchmarks/lab/raw_client.py PORT RATE SECONDS TOKENS`.
"""

import asyncio
import json
import sys

import uvloop

_END = b"0\r\n\r\n"


class _Discarding(asyncio.Protocol):
    """A kept-alive connection; free again when the answer's last chunk has come."""

    def __init__(self, free: list["_Discarding"]) -> None:
        self._free = free

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(_END):
            self._free.append(self)


async def send_load(port: int, rate: float, seconds: float, tokens: int) -> None:
    """`rate` requests per second at even distances, each for `tokens` tokens."""
    loop = asyncio.get_running_loop()
    free: list[_Discarding] = []
    body = json.dumps(
        {"prompt": [1, 2, 3], "max_tokens": tokens, "ignore_eos": True, "stream": True}
    )
    request = (
        f"POST /v1/completions HTTP/1.1\r\nhost: mock\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()
    begun_s = loop.time()
    for number in range(round(rate * seconds)):
        wait_s = begun_s + number / rate - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if free:
            connection = free.pop()
        else:
            _, connection = await loop.create_connection(
                lambda: _Discarding(free), "127.0.0.1", port
            )
        connection.transport.write(request)
    await asyncio.sleep(1)


if __name__ == "__main__":
    port, rate, seconds, tokens = sys.argv[1:]
    uvloop.run(send_load(int(port), float(rate), float(seconds), int(tokens)))

"""First requests of sessions, written before they are due: long prompts take milliseconds to write.

Bounded in number and bytes. Whenever one is taken, another is written after the taker has had its
turn; what is not ready in time is written when it is needed, and shows as client lag.
"""

import asyncio
from collections.abc import Iterator

from steelyard.lab.client.conversation import Conversation, ConversationMaker
from steelyard.lab.load import Plan, Turn

__all__ = ["PreparedOpenings"]

_MOST = 1024
_MOST_BYTES = 32 * 1024 * 1024


class PreparedOpenings:
    """Bodies by session; each is taken once."""

    def __init__(self, plan: Plan, conversations: ConversationMaker) -> None:
        self._plan = plan
        self._conversations = conversations
        self._ready: dict[int, tuple[Conversation, bytes]] = {}
        self._ready_bytes = 0
        self._ahead: Iterator[int] = iter(())
        self._latest_taken = -1

    def fill(self, sessions: Iterator[int]) -> None:
        """Write as many as may be kept, in the order in which they will be needed."""
        self._ahead = sessions
        while self._write_another():
            pass

    def take(self, session: int, opening: Turn) -> tuple[Conversation, bytes]:
        """The session's conversation and the body of its first request."""
        self._latest_taken = max(self._latest_taken, session)
        ready = self._ready.pop(session, None)
        if ready is None:
            return self._write(session, opening)
        self._ready_bytes -= len(ready[1])
        asyncio.get_running_loop().call_soon(self._write_another)
        return ready

    def request(self, body: bytes, request_id: str) -> bytes:
        """The whole request around a body."""
        return self._conversations.request(body, request_id)

    def _write_another(self) -> bool:
        """False when there is no room, or nothing left to write."""
        if len(self._ready) >= _MOST or self._ready_bytes >= _MOST_BYTES:
            return False
        session = next((s for s in self._ahead if s > self._latest_taken), None)
        if session is None:
            return False
        self._ready[session] = self._write(session, self._plan.turns(session)[0])
        self._ready_bytes += len(self._ready[session][1])
        return True

    def _write(self, session: int, opening: Turn) -> tuple[Conversation, bytes]:
        conversation = self._conversations.begin(session)
        return conversation, conversation.ask(opening.output_tokens)

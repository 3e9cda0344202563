"""What a session has said so far, and the body of its next request."""

from collections.abc import Callable, Sequence

from steelyard.lab.client.target import RequestWriter, Target
from steelyard.lab.load import PromptMaker

__all__ = ["Conversation", "ConversationMaker"]

Encode = Callable[[str], Sequence[int]]


class ConversationMaker:
    """Starts the sessions of a run."""

    def __init__(
        self, target: Target, prompts: PromptMaker, *, encode: Encode | None = None
    ) -> None:
        """`encode` turns plain prompts into token ids. None: they are sent as text."""
        self._is_chat = target.api == "chat"
        self._writer = RequestWriter(target)
        self._prompts = prompts
        self._encode = encode

    def begin(self, session: int) -> "Conversation":
        return Conversation(self, session)

    def user_text(self, session: int, turn: int) -> str:
        return self._prompts.user_text(session, turn)

    def body(self, spoken: Sequence[str], max_tokens: int) -> bytes:
        """`spoken`: user and assistant in turns, the user first and last."""
        if self._is_chat:
            roles = ("user", "assistant")
            messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(spoken)]
            return self._writer.chat(messages, max_tokens)
        prompt = "\n".join(spoken)
        return self._writer.completion(self._encode(prompt) if self._encode else prompt, max_tokens)

    def request(self, body: bytes, request_id: str) -> bytes:
        return self._writer.request(body, request_id)


class Conversation:
    """One session; mutable, owned by whoever plays it."""

    __slots__ = ("_maker", "_session", "_spoken", "_turn")

    def __init__(self, maker: ConversationMaker, session: int) -> None:
        self._maker = maker
        self._session = session
        self._spoken: list[str] = []
        self._turn = 0

    def ask(self, max_tokens: int) -> bytes:
        """Let the user speak; the body of the request."""
        self._spoken.append(self._maker.user_text(self._session, self._turn))
        self._turn += 1
        return self._maker.body(self._spoken, max_tokens)

    def hear(self, answer: str) -> None:
        """Remember what the server answered."""
        self._spoken.append(answer)

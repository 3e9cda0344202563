"""One request from its acceptance to its end, whichever replicas it visits on the way.

Keeps the token log: what was emitted is what a next replica is told, and what proves that nothing
was lost or repeated. Decides what a failure means for the request. Which replica is next is
`replica_set`'s decision.
"""

from typing import Literal

import msgspec

from steelyard.contract import GenerateRequest, TokenChunk, Usage
from steelyard.contract.errors import (
    DeadlineExceeded,
    EngineDraining,
    EngineFailed,
    Quarantined,
    RetryElsewhere,
    RetryLater,
    SteelyardError,
)
from steelyard.policies.config import RetryConfig
from steelyard.policies.quarantine import Stance, fingerprint
from steelyard.policies.routing import Trip

__all__ = ["Journey"]


class Journey:
    """Mutable; owned by the generator that serves the request."""

    __slots__ = (
        "_cached_tokens",
        "_config",
        "_fingerprint",
        "attempts",
        "attempts_in_all",
        "began_s",
        "cannot_continue",
        "emitted",
        "failed",
        "failed_by",
        "failed_s",
        "is_aborted",
        "is_accepted",
        "is_hedged",
        "is_plain",
        "is_shed",
        "refusal",
        "request",
        "stance",
        "tried",
        "waits_until_s",
        "was_in_death",
    )

    def __init__(self, request: GenerateRequest, began_s: float, config: RetryConfig) -> None:
        self.request = request
        self.began_s = began_s
        self._config = config
        self.emitted: list[int] = list(request.emitted_ids)
        """The token log."""
        self.attempts = 0
        """Failed ones since the last token."""
        self.attempts_in_all = 0
        self.tried: set[int] = set()
        """Replicas that have refused it in this round, by index."""
        self.failed: set[int] = set()
        """Replicas that have failed on it since its last token: avoided if there are others."""
        self.refusal: RetryLater | None = None
        """The most promising refusal of this round; None when nobody has refused."""
        self.is_accepted = False
        """A replica had taken it on, so it is not for the client to try again."""
        self.is_aborted = False
        self.is_shed = False
        """It was refused because it would have waited too long, although somebody was there."""
        self.cannot_continue = False
        """Somebody was there, but its kind takes no tokens that others have emitted."""
        self.is_hedged = False
        self.stance = Stance.CLEAR
        """What deaths say of it; clear again once it has brought a token since."""
        self.was_in_death = False
        self.failed_by = ""
        """Code of the newest failure."""
        self.failed_s: float | None = None
        """Since when no replica works on it, its last silence included; None while one does."""
        self.waits_until_s: float | None = None
        """When waiting for a replica ends; None while it does not wait."""
        self.is_plain = True
        """Chunks reach the client as they are: it is still in its first attempt."""
        self._cached_tokens: int | None = None
        self._fingerprint: bytes | None = None

    @property
    def fingerprint(self) -> bytes:
        """See `policies.quarantine`."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint(self.request)
        return self._fingerprint

    @property
    def stage(self) -> Literal["waiting", "streaming"]:
        """Whether the client has been given anything."""
        return "streaming" if self.emitted else "waiting"

    def trip(self, output_tokens: float) -> Trip:
        """For routing. `output_tokens`: how long an answer is expected to be."""
        request = self.request
        token_ids = request.prompt_ids
        if self.emitted:
            token_ids = (*token_ids, *self.emitted)
        return Trip(
            token_ids,
            max(min(request.sampling.max_tokens - len(self.emitted), output_tokens), 1.0),
            salt=request.cache_salt,
            session=request.session,
        )

    def next_request(self, now_s: float) -> GenerateRequest:
        """What the next replica is asked. Raises `DeadlineExceeded`.

        Every attempt has an id of its own, so that late tokens of one that was given up cannot be
        taken for those of the next.
        """
        request = self.request
        left_s = self.remaining_s(now_s)
        self.attempts_in_all += 1
        number = self.attempts_in_all
        if number == 1 and left_s == request.deadline_s:
            return request
        return msgspec.structs.replace(
            request,
            request_id=request.request_id if number == 1 else f"{request.request_id}~{number}",
            deadline_s=left_s,
            emitted_ids=tuple(self.emitted),
        )

    def remaining_s(self, now_s: float) -> float | None:
        """Seconds to the deadline; None without one. Raises `DeadlineExceeded` after it."""
        deadline_s = self.request.deadline_s
        if deadline_s is None:
            return None
        left_s = self.began_s + deadline_s - now_s
        if left_s <= 0:
            raise DeadlineExceeded(f"not done after {deadline_s:g} s")
        return left_s

    def take(self, chunk: TokenChunk) -> TokenChunk:
        """Note a chunk that the client is about to be given, and return it as the client would
        have seen it without any failure. Raises `EngineFailed` on a gap or a repetition.

        The usual chunk, of a request that was never moved, does not come here: see
        `FailoverEngine.generate`.
        """
        if chunk.start != len(self.emitted):
            raise EngineFailed(f"expected token {len(self.emitted)}, got {chunk.start}")
        self.emitted += chunk.token_ids
        usage = chunk.usage
        if usage is not None and self._cached_tokens is None:
            self._cached_tokens = usage.cached_tokens
        if self.is_plain:
            return chunk
        if usage is not None or chunk.finish_reason is not None:
            prompt_tokens = len(self.request.prompt_ids)
            usage = Usage(prompt_tokens, len(self.emitted), self._cached_tokens or 0)
        return msgspec.structs.replace(chunk, request_id=self.request.request_id, usage=usage)

    def note_token(self) -> None:
        """An attempt has brought its first token."""
        self.attempts = 0
        self.tried.clear()
        self.failed.clear()
        self.refusal = None
        self.is_accepted = True
        self.stance = Stance.CLEAR
        self.failed_s = self.waits_until_s = None

    def note_failure(self, error: SteelyardError, now_s: float, *, silent_s: float) -> None:
        """An attempt has failed. Raises what the client is told if there must not be another one.

        `silent_s`: how long it had brought nothing before.
        """
        if isinstance(error, RetryLater):
            self.note_refusal(error)
            return
        if not isinstance(error, RetryElsewhere):
            raise error
        self.is_accepted = True
        self.failed_by = error.code
        if self.failed_s is None:
            self.failed_s = now_s - silent_s
        if not isinstance(error, EngineDraining):
            self.attempts += 1
        config = self._config
        if self.stance is Stance.REFUSED:
            raise Quarantined(
                "replicas died one after the other while they ran this request, so it is refused"
            )
        if self.attempts >= config.max_attempts:
            raise error
        if self.attempts_in_all >= config.max_attempts_in_all:
            raise error

    def note_refusal(self, error: RetryLater) -> None:
        """A replica cannot take it now, or nobody can."""
        if self.refusal is None or error.delay_s < self.refusal.delay_s:
            self.refusal = error

    def take_refusal(self) -> RetryLater:
        """The most promising refusal of this round, which ends. Valid when there was one."""
        refusal, self.refusal = self.refusal, None
        assert refusal is not None, "a round ended without a refusal"
        return refusal

    def begin_round(self, refusal: RetryLater, now_s: float) -> float:
        """Nobody can take it now: how long to wait before all are asked again, in seconds.

        Raises the refusal when there is nothing to wait for, or no patience left.
        """
        if self.waits_until_s is None:
            self.waits_until_s = now_s + self._config.patience_s
        if not self.is_accepted or now_s >= self.waits_until_s:
            raise refusal
        self.tried.clear()
        wait_s = min(refusal.delay_s, self.waits_until_s - now_s)
        left_s = self.remaining_s(now_s)
        return wait_s if left_s is None else min(wait_s, left_s)

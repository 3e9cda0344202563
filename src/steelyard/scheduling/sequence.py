"""One live request: its tokens, how far they are computed, and when it is finished.

A plain record with slots: the scheduler moves it through waiting and running, `kv_manager` keeps
its place in KV memory up to date, the runner reads it. Decisions are theirs, not made here.

    token_ids   p p p p p p p p | o o o          p: prompt, o: emitted before or produced here
                prompt_tokens = 8
    computed    [0, 10)                          KV is in the cache
    owed                        [10, 11)         the next slice computes it, and samples
"""

from steelyard.contract import FinishReason, GenerateRequest, Usage

__all__ = ["Sequence"]


class Sequence:
    """A request between its submission and its end. Compared by identity."""

    __slots__ = (
        "arrival_order",
        "arrival_s",
        "cached_tokens",
        "claimed_tokens",
        "commit_at_tokens",
        "computed_tokens",
        "held_by",
        "held_key",
        "length_limit",
        "preemptions",
        "prefill_end",
        "prefix_keys",
        "priority",
        "prompt_tokens",
        "request",
        "request_id",
        "room_tokens",
        "row",
        "sampling",
        "stop_from",
        "stop_ids",
        "token_ids",
    )

    def __init__(
        self,
        request: GenerateRequest,
        *,
        arrival_s: float = 0.0,
        arrival_order: int = 0,
        end_token_ids: frozenset[int] = frozenset(),
    ) -> None:
        sampling = request.sampling
        self.request = request
        self.request_id = request.request_id
        self.sampling = sampling
        self.priority = request.priority
        self.arrival_s = arrival_s
        self.arrival_order = arrival_order
        """Unique; later requests have larger ones."""

        self.token_ids: list[int] = [*request.prompt_ids, *request.emitted_ids]
        self.prompt_tokens = len(request.prompt_ids)
        self.computed_tokens = 0
        """Tokens whose KV is in the cache: found there or computed by applied steps."""
        self.cached_tokens = 0
        """Prompt tokens found in the cache when the request was first admitted."""
        self.preemptions = 0

        stop_ids = frozenset(sampling.stop_token_ids)
        self.stop_ids = stop_ids if sampling.ignore_eos else stop_ids | end_token_ids
        self.stop_from = self.prompt_tokens + sampling.min_tokens
        """Index into `token_ids` from which on a stop token ends the request."""
        self.length_limit = self.prompt_tokens + sampling.max_tokens
        """Length of `token_ids` at which the request is finished."""

        # While running; kept by the scheduler and the KV manager.
        self.row = -1
        """Row in every block table; -1 while not running."""
        self.prefill_end = 0
        """Length of `token_ids` at admission: what precedes is prefill, what follows decode."""
        self.room_tokens = 0
        """The blocks held in every group have room for the KV of this many tokens."""
        self.commit_at_tokens = 0
        """When this many tokens are computed the next block is full and gets its key."""
        self.claimed_tokens = 0
        """Boundaries up to here are announced as about to be computed."""
        self.prefix_keys: list[bytes] = []

        # While waiting.
        self.held_by: str | None = None
        """Why it was last held back; None when it was not."""
        self.held_key: bytes | None = None
        """Key of the prefix it waits for while another sequence computes it."""

    @property
    def is_running(self) -> bool:
        return self.row >= 0

    @property
    def output_start(self) -> int:
        """Index within the completion of the next token: how many it already has."""
        return len(self.token_ids) - self.prompt_tokens

    @property
    def output_ids(self) -> list[int]:
        """The completion so far, emitted tokens of a continued stream included. A copy."""
        return self.token_ids[self.prompt_tokens :]

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the newest token ends the request; None when it does not."""
        last = len(self.token_ids) - 1
        if last >= self.stop_from and self.token_ids[last] in self.stop_ids:
            return "stop"
        return "length" if last + 1 >= self.length_limit else None

    @property
    def usage(self) -> Usage:
        return Usage(self.prompt_tokens, self.output_start, self.cached_tokens)

    def __repr__(self) -> str:
        return (
            f"<Sequence {self.request_id} row={self.row}"
            f" computed={self.computed_tokens}/{len(self.token_ids)}>"
        )

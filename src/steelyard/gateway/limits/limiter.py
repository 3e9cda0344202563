"""The step after authentication: may this tenant ask for so much, now?

    permit entered      one request and one place in flight are taken
    permit.reserve      prompt and possible output are taken, once the prompt's length is known
    permit left         the place, and what was not used, are given back: exactly once, however
                        the request ended

Every answer on the way carries the tenant's budgets in its header. Where budgets are kept is the
store's business; fairness among those who wait is the queue's.
"""

from types import TracebackType

from steelyard.contract.errors import InvalidRequest, RateLimited, SteelyardError
from steelyard.gateway.caller import Caller
from steelyard.gateway.http import Call
from steelyard.gateway.limits.config import TenantRules, TenantsConfig
from steelyard.gateway.limits.headers import limit_headers
from steelyard.gateway.limits.store import Lease, LimitStore
from steelyard.policies.budgets import Verdict
from steelyard.telemetry.access_meter import AccessMeter
from steelyard.telemetry.request_meter import RequestMeter

__all__ = ["Limiter", "Permit"]


class Limiter:
    """Rules from `config`, budgets in `store`."""

    def __init__(self, config: TenantsConfig, store: LimitStore, meter: AccessMeter) -> None:
        self._config = config
        self._store = store
        self._meter = meter

    def rules(self, caller: Caller) -> TenantRules:
        """What the caller may do."""
        return self._config.rules(caller.tenant, caller.plan)

    def permit(self, call: Call, request: RequestMeter | None = None) -> "Permit":
        """An asynchronous context for one request. `request` counts what it produces; None for
        one that produces nothing.

        Entering it raises `RateLimited`.
        """
        return Permit(
            call,
            self.rules(call.caller),
            self._store,
            self._meter,
            request=request,
            assumed_tokens=self._config.assumed_tokens,
        )


class Permit:
    """One request's hold on its tenant's budgets."""

    __slots__ = (
        "_assumed_tokens",
        "_base_headers",
        "_call",
        "_lease",
        "_meter",
        "_prompt_tokens",
        "_request",
        "_store",
        "rules",
    )

    def __init__(
        self,
        call: Call,
        rules: TenantRules,
        store: LimitStore,
        meter: AccessMeter,
        *,
        request: RequestMeter | None,
        assumed_tokens: int,
    ) -> None:
        self.rules = rules
        """What the tenant may do, for the whole of this request."""
        self._call = call
        self._store = store
        self._meter = meter
        self._request = request
        self._assumed_tokens = assumed_tokens
        self._base_headers = call.answer_headers
        self._lease: Lease | None = None
        self._prompt_tokens = 0

    async def __aenter__(self) -> "Permit":
        limits = self.rules.limits
        if limits.is_unlimited:
            return self
        verdict, self._lease = await self._store.open(self._call.caller.tenant, limits)
        self._show(verdict)
        if self._lease is None:
            raise self._refusal(verdict)
        return self

    async def reserve(self, prompt_tokens: int, asked_tokens: int | None, max_tokens: int) -> None:
        """Take the prompt and what may be produced. From here on the prompt counts as used.

        `asked_tokens` is what the request named for all its sequences, None when it named
        nothing; `max_tokens` what they can produce at most. Raises `RateLimited`, or
        `InvalidRequest` when the budget can never hold so much.
        """
        limit = self.rules.limits.tokens_per_minute
        if self._lease is None or limit is None:
            return
        output = asked_tokens
        if output is None:
            room = max(limit - prompt_tokens, 0)
            output = min(self._assumed_tokens, max_tokens, room)
        if prompt_tokens + output > limit:
            raise InvalidRequest(
                f"the prompt has {prompt_tokens} tokens and up to {output} may be produced, but "
                f"this tenant may use {limit} per minute",
                param="max_tokens",
                fix="Ask for less.",
            )
        verdict = await self._store.reserve(self._lease, prompt_tokens + output)
        self._show(verdict)
        if verdict.refused_by is not None:
            raise self._refusal(verdict)
        self._prompt_tokens = prompt_tokens

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._store.close(lease, self._used(error))

    def _used(self, error: BaseException | None) -> int:
        """Tokens. A failure of ours that produced nothing costs nothing; a client that leaves has
        had its prompt computed."""
        produced = 0 if self._request is None else self._request.output_tokens
        if produced == 0 and isinstance(error, SteelyardError):
            return 0
        return self._prompt_tokens + produced

    def _show(self, verdict: Verdict) -> None:
        self._call.answer_headers = self._base_headers + limit_headers(verdict)

    def _refusal(self, verdict: Verdict) -> RateLimited:
        assert verdict.refused_by is not None, "an answer of yes refuses nothing"
        limits = self.rules.limits
        what = {
            "requests": f"{limits.requests_per_minute} requests per minute",
            "tokens": f"{limits.tokens_per_minute} tokens per minute",
            "concurrency": f"{limits.concurrent_requests} requests at once",
        }[verdict.refused_by]
        self._meter.limited(self._call.caller.tenant, verdict.refused_by)
        return RateLimited(
            f"this tenant may use {what}",
            delay_s=verdict.retry_after_us / 1e6,
            fix="Retry after the given delay.",
        )

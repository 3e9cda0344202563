"""The one error tree. Each class says what the caller may do next.

    SteelyardError
    ├── RetryElsewhere           another replica may serve this request now
    │   ├── EngineLost           the process died or its connection broke
    │   ├── EngineStalled        no token came within the stall limit
    │   ├── EngineDraining       the replica takes no new work
    │   └── EngineFailed         the replica failed on this step or request
    ├── RetryLater               the same place may serve it after `delay_s`
    │   ├── EngineStarting       the replica is loading, or its process is being replaced
    │   ├── Overloaded           the queue is full or the target cannot be met now
    │   └── RateLimited          the tenant's budget is spent
    └── Never                    the same request will fail everywhere
        ├── InvalidRequest       a value is malformed or out of range
        │   ├── ContextTooLong   prompt and output exceed what the model can hold
        │   ├── UnknownModel     no such model is served here
        │   ├── UnsupportedFeature   a parameter that this deployment cannot honour
        │   └── PayloadTooLarge  the body is over the limit
        ├── Unauthorised         no valid credentials
        ├── Forbidden            valid credentials without the needed grant
        ├── NotFound             no such route or object
        ├── DeadlineExceeded     the caller's deadline passed
        ├── Cancelled            the caller gave up
        ├── Quarantined          engines die of this request
        ├── InternalError        a bug of ours
        ├── ProtocolError        a peer broke the wire protocol
        ├── SettingsError        the deployment file cannot work
        └── CheckpointError      a model on disk cannot be used

Failover reads the class, never the text (`retry`). Adapters translate foreign errors into this
tree; HTTP status codes belong to the gateway. `to_info` and `from_info` carry errors over the wire.
"""

import enum
from typing import ClassVar

import msgspec

__all__ = [
    "Cancelled",
    "CheckpointError",
    "ContextTooLong",
    "DeadlineExceeded",
    "EngineDraining",
    "EngineFailed",
    "EngineLost",
    "EngineStalled",
    "EngineStarting",
    "ErrorInfo",
    "Forbidden",
    "InternalError",
    "InvalidRequest",
    "Never",
    "NotFound",
    "Overloaded",
    "PayloadTooLarge",
    "ProtocolError",
    "Quarantined",
    "RateLimited",
    "Retry",
    "RetryElsewhere",
    "RetryLater",
    "SettingsError",
    "SteelyardError",
    "Unauthorised",
    "UnknownModel",
    "UnsupportedFeature",
    "error_classes",
    "from_info",
    "to_info",
]


class Retry(enum.Enum):
    """What the caller may do with a failed request."""

    ELSEWHERE = "elsewhere"
    LATER = "later"
    NEVER = "never"


class SteelyardError(Exception):
    """Root of the tree; never raised itself.

    `param` names the request parameter or settings key at fault; None when no single one is.
    `fix` says what to change; empty when the message already does.
    """

    code: ClassVar[str] = "error"
    retry: ClassVar[Retry] = Retry.NEVER

    def __init__(self, message: str, *, param: str | None = None, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.fix = fix

    def __str__(self) -> str:
        where = f"{self.param}: " if self.param else ""
        fix = f" Fix: {self.fix}" if self.fix else ""
        return f"{where}{self.message}{fix}"


class RetryElsewhere(SteelyardError):
    """Another replica may serve this request now, continuing after the tokens already emitted."""

    code = "retry_elsewhere"
    retry = Retry.ELSEWHERE


class EngineLost(RetryElsewhere):
    """The engine's process died or its connection broke."""

    code = "engine_lost"


class EngineStalled(RetryElsewhere):
    """The engine is connected but produced no token within the stall limit."""

    code = "engine_stalled"


class EngineDraining(RetryElsewhere):
    """The engine finishes what it has and takes no new work."""

    code = "engine_draining"


class EngineFailed(RetryElsewhere):
    """The engine failed while computing this request."""

    code = "engine_failed"


class RetryLater(SteelyardError):
    """The same request may succeed here after `delay_s` seconds."""

    code = "retry_later"
    retry = Retry.LATER

    def __init__(
        self, message: str, *, delay_s: float = 1.0, param: str | None = None, fix: str = ""
    ) -> None:
        super().__init__(message, param=param, fix=fix)
        self.delay_s = delay_s


class EngineStarting(RetryLater):
    """The engine is loading its model, or its process is being replaced; it will be back.

    The message is written for clients: it names no file, address or process.
    """

    code = "engine_starting"


class Overloaded(RetryLater):
    """The queue is full, or the latency target cannot be met for one request more."""

    code = "overloaded"


class RateLimited(RetryLater):
    """The tenant's requests, tokens or concurrency budget is spent."""

    code = "rate_limit_exceeded"


class Never(SteelyardError):
    """Retrying the same request cannot help."""

    code = "never"


class InvalidRequest(Never):
    """A value is malformed, of the wrong type or out of range."""

    code = "invalid_value"


class ContextTooLong(InvalidRequest):
    """Prompt and requested output exceed what the model or its KV memory can hold."""

    code = "context_length_exceeded"


class UnknownModel(InvalidRequest):
    """No such model is served here."""

    code = "model_not_found"


class UnsupportedFeature(InvalidRequest):
    """The parameter is known, but this deployment cannot honour it."""

    code = "unsupported_parameter"


class PayloadTooLarge(InvalidRequest):
    """The body is larger than the door's limit."""

    code = "payload_too_large"


class Unauthorised(Never):
    """Credentials are missing or not valid."""

    code = "invalid_api_key"


class Forbidden(Never):
    """Credentials are valid but lack the needed grant."""

    code = "permission_denied"


class NotFound(Never):
    """No such route or object."""

    code = "not_found"


class DeadlineExceeded(Never):
    """The caller's deadline passed before the work was done."""

    code = "deadline_exceeded"


class Cancelled(Never):
    """The caller gave the request up."""

    code = "cancelled"


class Quarantined(Never):
    """Replicas died one after the other while they ran this request; it is given to no other."""

    code = "request_quarantined"


class InternalError(Never):
    """A bug of ours; details are in the log, not in the message."""

    code = "internal_error"


class ProtocolError(Never):
    """A peer sent a frame that breaks the wire protocol; its connection is closed."""

    code = "protocol_error"


class SettingsError(Never):
    """The deployment file, an environment variable or a flag cannot work; `param` is its path."""

    code = "settings_error"


class CheckpointError(Never):
    """A model on disk cannot be used; `param` names the file."""

    code = "checkpoint_error"


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error on the wire. `code` finds the class again."""

    code: str
    message: str
    param: str | None = None
    fix: str = ""
    delay_s: float = 0.0


def error_classes() -> dict[str, type[SteelyardError]]:
    """Every class of the tree by its code; codes are unique."""
    found: dict[str, type[SteelyardError]] = {}
    pending: list[type[SteelyardError]] = [SteelyardError]
    while pending:
        cls = pending.pop()
        assert cls.code not in found, f"{cls.__name__} repeats the code {cls.code!r}"
        found[cls.code] = cls
        pending.extend(cls.__subclasses__())
    return found


def to_info(error: SteelyardError) -> ErrorInfo:
    """Describe `error` for the wire."""
    delay_s = error.delay_s if isinstance(error, RetryLater) else 0.0
    return ErrorInfo(
        code=error.code, message=error.message, param=error.param, fix=error.fix, delay_s=delay_s
    )


def from_info(info: ErrorInfo) -> SteelyardError:
    """Rebuild the error; an unknown code becomes `InternalError`, which is never retried."""
    cls = _CLASSES.get(info.code, InternalError)
    if issubclass(cls, RetryLater):
        return cls(info.message, delay_s=info.delay_s, param=info.param, fix=info.fix)
    return cls(info.message, param=info.param, fix=info.fix)


_CLASSES = error_classes()

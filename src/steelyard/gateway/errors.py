"""What a client is told when something goes wrong: status, OpenAI error object, headers.

`contract.errors` says what may be done about an error; this module says it in HTTP. Texts of 4xx
errors are written for clients and passed on; those of 5xx errors may name files, addresses or
processes, so clients get a fixed sentence and the log gets the text, joined by the request id.
"""

import math

import msgspec

from steelyard.contract import errors as tree

__all__ = ["Refusal", "explain", "http_refusal", "statuses"]


class Refusal(Exception):
    """An answer that is an error; raised anywhere on a request's path."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str,
        code: str,
        param: str | None = None,
        retry_after_s: float | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.close = close
        """True when the connection cannot be used after this answer."""
        self._headers = headers

    @property
    def body(self) -> bytes:
        """The OpenAI error object."""
        return msgspec.json.encode(
            {
                "error": {
                    "message": self.message,
                    "type": self.kind,
                    "param": self.param,
                    "code": self.code,
                }
            }
        )

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Fields besides the usual ones."""
        if self.retry_after_s is None:
            return self._headers
        return (*self._headers, ("retry-after", str(max(1, math.ceil(self.retry_after_s)))))


def explain(error: tree.SteelyardError) -> Refusal:
    """The answer for an error of the tree."""
    status, kind, public_text = _row(type(error))
    retry_after_s: float | None = None
    if isinstance(error, tree.RetryLater):
        retry_after_s = error.delay_s
    elif status == 503:
        retry_after_s = 1.0
    message = public_text or _with_fix(error.message, error.fix)
    return Refusal(
        status,
        message,
        kind=kind,
        code=error.code,
        param=error.param if status < 500 else None,
        retry_after_s=retry_after_s,
    )


def http_refusal(
    status: int,
    code: str,
    message: str,
    *,
    headers: tuple[tuple[str, str], ...] = (),
    close: bool = False,
) -> Refusal:
    """A refusal of HTTP itself (method, length, timeout), which no error class stands for."""
    return Refusal(
        status, message, kind="invalid_request_error", code=code, headers=headers, close=close
    )


def statuses() -> dict[type[tree.SteelyardError], int]:
    """The status of every class that has its own row; for tests and the reference."""
    return {cls: row[0] for cls, row in _ROWS.items()}


def _with_fix(message: str, fix: str) -> str:
    """One or two sentences."""
    sentence = message if message.endswith((".", "!", "?")) else f"{message}."
    return f"{sentence} {fix}" if fix else sentence


def _row(cls: type[tree.SteelyardError]) -> tuple[int, str, str | None]:
    for ancestor in cls.__mro__:
        if ancestor in _ROWS:
            return _ROWS[ancestor]
    raise AssertionError(f"{cls.__name__} is outside the error tree")


_INVALID = "invalid_request_error"
_UNAVAILABLE = "service_unavailable_error"
_SERVER = "server_error"
_RETRY = "Please retry the request."

# Class → status, OpenAI error type, and the text for clients (None: the error's own).
_ROWS: dict[type[tree.SteelyardError], tuple[int, str, str | None]] = {
    tree.SteelyardError: (500, _SERVER, "The server failed on this request."),
    tree.RetryElsewhere: (503, _UNAVAILABLE, f"No engine could serve this request. {_RETRY}"),
    tree.EngineLost: (503, _UNAVAILABLE, f"The engine was lost. {_RETRY}"),
    tree.EngineStalled: (504, "timeout_error", f"The engine stopped producing. {_RETRY}"),
    tree.EngineDraining: (503, _UNAVAILABLE, f"The engine is shutting down. {_RETRY}"),
    tree.EngineFailed: (500, _SERVER, f"The engine failed on this request. {_RETRY}"),
    tree.RetryLater: (503, _UNAVAILABLE, None),
    tree.EngineStarting: (503, _UNAVAILABLE, None),
    tree.Overloaded: (429, "rate_limit_error", None),
    tree.RateLimited: (429, "rate_limit_error", None),
    tree.Never: (400, _INVALID, None),
    tree.InvalidRequest: (400, _INVALID, None),
    tree.ContextTooLong: (400, _INVALID, None),
    tree.UnknownModel: (404, _INVALID, None),
    tree.UnsupportedFeature: (400, _INVALID, None),
    tree.PayloadTooLarge: (413, _INVALID, None),
    tree.Unauthorised: (401, "authentication_error", None),
    tree.Forbidden: (403, "permission_error", None),
    tree.NotFound: (404, _INVALID, None),
    tree.DeadlineExceeded: (504, "timeout_error", "The deadline of the request passed."),
    tree.Cancelled: (499, _INVALID, "The request was cancelled."),
    tree.Quarantined: (422, _INVALID, None),
    tree.InternalError: (500, _SERVER, "The server failed on this request."),
    tree.ProtocolError: (502, _SERVER, f"The engine's answer could not be read. {_RETRY}"),
    tree.SettingsError: (500, _SERVER, "The server is misconfigured."),
    tree.CheckpointError: (500, _SERVER, "The model cannot be used."),
}

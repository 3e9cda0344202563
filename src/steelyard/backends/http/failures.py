"""Foreign failures become errors of the tree: statuses, error objects, and aiohttp's exceptions.

    the client's fault          400, 413, 422            InvalidRequest and its kin: never again
    the endpoint is busy        429                      Overloaded, with its own delay
    not there for now           503, 425, 409            EngineStarting: later, or elsewhere
    the deployment's fault      401, 403, 404, 405, 3xx  EngineFailed that names the setting
    the endpoint's fault        other 5xx                EngineFailed
    the connection's fault      refused, reset, cut off  EngineLost
    nothing came in time        408, 504, timeouts       EngineStalled

An error object with a code of our own tree (the endpoint is another Steelyard) means just that,
except where it concerns credentials: those are ours, not the client's.
"""

import contextlib
import math
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import msgspec

from steelyard.contract.errors import (
    ContextTooLong,
    EngineFailed,
    EngineLost,
    EngineStalled,
    EngineStarting,
    ErrorInfo,
    InvalidRequest,
    Never,
    Overloaded,
    PayloadTooLarge,
    SteelyardError,
    error_classes,
    from_info,
)

__all__ = ["error_of_event", "error_of_status", "is_absence", "retry_after_s", "translated"]

_SHOWN_CHARS = 500
_DEFAULT_DELAY_S = 1.0
_LONGEST_DELAY_S = 3600.0
_CLIENT_FAULTS = (400, 413, 422)
_NOT_NOW = (409, 425, 503)
_TOO_LATE = (408, 504)
_CONTEXT_WORDS = ("context length", "context size", "maximum model length", "max_model_len")
_FIRST_FAILURE = 500


def error_of_status(status: int, body: bytes, delay_s: float | None) -> SteelyardError:
    """What an answer other than 200 means; `delay_s` is its `Retry-After`."""
    error = _error_object(body)
    text = _text(error) or f"status {status}"
    own = _own_error(error, text, delay_s)
    if own is not None and status not in (401, 403, 404):
        return own
    if status == 429:
        return Overloaded(_CLIENTS_BUSY, delay_s=_delay(delay_s))
    if status in _NOT_NOW:
        return EngineStarting("the engine cannot take requests now", delay_s=_delay(delay_s))
    if status in _TOO_LATE:
        return EngineStalled(f"the endpoint gave up: {text}")
    if status in _CLIENT_FAULTS:
        return _client_fault(status, error, text)
    if (param := _setting_at_fault(status)) is not None:
        return EngineFailed(f"the endpoint answered {status}: {text}", param=param)
    return EngineFailed(f"the endpoint answered {status}: {text}")


def error_of_event(error: Any) -> SteelyardError:
    """What an error object within a stream means."""
    text = _text(error) or "no reason given"
    own = _own_error(error, text, None)
    if own is not None and not isinstance(own, Never):
        return own
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and code < _FIRST_FAILURE:
        return error_of_status(code, msgspec.json.encode({"error": error}), None)
    return EngineFailed(f"the endpoint failed within a stream: {text}")


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise aiohttp's exceptions as errors of the tree; `where` names the endpoint."""
    try:
        yield
    except aiohttp.ClientSSLError as error:
        raise EngineLost(
            f"no encrypted connection to {where}: {_last_words(error)}",
            fix="name the authority that signed its certificate in remote.ca_file",
        ) from error
    except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
        raise EngineLost(f"cannot connect to {where}: {_last_words(error)}") from error
    except (TimeoutError, aiohttp.ServerTimeoutError) as error:
        raise EngineStalled(f"nothing came from {where} within the time limit") from error
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
        raise EngineLost(f"the connection to {where} broke: {_last_words(error)}") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise EngineFailed(f"{where} does not speak HTTP well: {_last_words(error)}") from error


def is_absence(error: SteelyardError) -> bool:
    """True when nobody listens there at all."""
    cause = error.__cause__
    return isinstance(error, EngineLost) and isinstance(
        cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
    )


def retry_after_s(header: str | None, now_unix_s: float) -> float | None:
    """`Retry-After` in seconds; None when there is none that can be read."""
    if header is None:
        return None
    with contextlib.suppress(ValueError):
        seconds = float(header)
        return min(max(seconds, 0.0), _LONGEST_DELAY_S) if math.isfinite(seconds) else None
    with contextlib.suppress(ValueError, TypeError):
        seconds = parsedate_to_datetime(header).timestamp() - now_unix_s
        return min(max(seconds, 0.0), _LONGEST_DELAY_S)
    return None


_CLIENTS_BUSY = "the engine has as many requests as it takes"


def _setting_at_fault(status: int) -> str | None:
    """The key that makes an endpoint answer so, whatever the request; None when it is another
    fault. Clients cannot help it, and another replica may do better."""
    if status in (401, 403):
        return "remote.api_key_file"
    if status in (404, 405) or 300 <= status < 400:
        return "remote.url"
    return None


def _client_fault(status: int, error: Any, text: str) -> SteelyardError:
    param = error.get("param") if isinstance(error, dict) else None
    param = param if isinstance(param, str) else None
    if status == 413:
        return PayloadTooLarge(text)
    if any(words in text.lower() for words in _CONTEXT_WORDS):
        return ContextTooLong(text, param=param)
    return InvalidRequest(text, param=param)


def _own_error(error: Any, text: str, delay_s: float | None) -> SteelyardError | None:
    """The error of our own tree that the endpoint names; None when it names none."""
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(code, str) or code not in error_classes():
        return None
    param = error.get("param")
    return from_info(
        ErrorInfo(
            code=code,
            message=text,
            param=param if isinstance(param, str) else None,
            delay_s=_delay(delay_s),
        )
    )


def _error_object(body: bytes) -> Any:
    """The object under `error`, or the whole answer; None when it is no JSON."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return answer.get("error", answer) if isinstance(answer, dict) else None


def _text(error: Any) -> str:
    """What an error object says, short enough for a message."""
    text = error.get("message") if isinstance(error, dict) else error
    return text[:_SHOWN_CHARS] if isinstance(text, str) else ""


def _delay(delay_s: float | None) -> float:
    return _DEFAULT_DELAY_S if delay_s is None else delay_s


def _last_words(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:_SHOWN_CHARS]

"""Settings of the door, resolved: every value is final here.

`cli.wiring` fills them from the deployment file's sections `gateway` and `tenants`. The engine's
own limits are `scheduling.config`.
"""

import secrets
from dataclasses import dataclass, field

from steelyard.gateway.auth.config import AuthConfig
from steelyard.gateway.batches.config import BatchesConfig
from steelyard.gateway.limits.config import TenantsConfig

__all__ = ["GatewayConfig", "HttpLimits", "RequestLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What a connection may send and hold, and for how long."""

    max_header_bytes: int = 32 * 1024
    """Request line and fields together, give or take one read from the socket; then 431."""
    header_timeout_s: float = 10.0
    """From the connection's opening, or a later request's first byte, to the header's end; 408."""
    max_body_bytes: int = 8 * 1024**2
    """More is refused with 413, by Content-Length where there is one."""
    body_timeout_s: float = 30.0
    """From the header's end to the body's end; 408."""
    idle_timeout_s: float = 75.0
    """A kept-alive connection without a request is closed after this long."""
    write_timeout_s: float = 30.0
    """A client must take `write_buffer_bytes` of what waits for it within this time, or it is
    disconnected and its request aborted."""
    write_buffer_bytes: int = 64 * 1024
    """Answers wait in our memory up to about this size per connection before the request is made
    to wait."""
    max_connections: int = 1024
    """One more is answered with 503 and closed."""
    linger_s: float = 1.0
    """How long a refused client's remaining bytes are read and thrown away, so that it sees the
    refusal instead of a connection reset."""
    backlog: int = 1024
    """Connections the kernel may hold before they are accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What one request may ask for. All are refused with 400 before any work is done."""

    max_tokens: int | None = None
    """Highest `max_tokens`; None leaves it to the model's context."""
    default_max_tokens: int | None = None
    """Of chat requests that name none; None means all that limit and context leave. Text
    completions without `max_tokens` get 16, as OpenAI documents it."""
    max_n: int = 16
    """Choices per prompt."""
    max_sequences: int = 64
    """Choices times prompts: each is a sequence for the engine."""
    max_logprobs: int = 20
    """Most likely tokens reported per position."""
    max_stop: int = 16
    """Stop strings, and stop token ids, per request."""
    max_stop_chars: int = 256
    """Length of one stop string; this much text may be held back."""
    max_logit_bias: int = 1024
    """Entries of `logit_bias`."""
    max_messages: int = 4096
    """Messages of one conversation."""
    inline_prompt_chars: int = 16_384
    """Longer prompts are tokenised in a thread, so that streams of others do not wait."""

    @property
    def max_field_bytes(self) -> int:
        """JSON bytes of any one parameter but the prompt: what the limits above can need."""
        stop_bytes = 8 * self.max_stop * self.max_stop_chars
        return max(64 * 1024, 48 * self.max_logit_bias, stop_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The OpenAI-compatible door."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one; `HttpServer.address` tells which."""
    reuse_port: bool = False
    """Let several worker processes listen on the same port; the kernel spreads connections."""
    unix_socket: str | None = None
    """Listen on a socket file instead, which only this user can connect to."""
    auth: AuthConfig = field(default_factory=AuthConfig)
    tenants: TenantsConfig = field(default_factory=TenantsConfig)
    has_metrics: bool = True
    """Serve `/metrics` here, with the grant `llm:admin`."""
    cors_origins: tuple[str, ...] = ()
    """Web pages that may call the API from a browser; empty switches CORS off, `*` allows all."""
    http: HttpLimits = field(default_factory=HttpLimits)
    requests: RequestLimits = field(default_factory=RequestLimits)
    batches: BatchesConfig | None = None
    """None: there are no files and no batches."""
    max_in_flight: int = 256
    """Requests handed to the engine at once. More than the engine runs, so that it never idles;
    not many more, so that waiting happens where order can still be changed."""
    max_queue: int = 256
    """Requests that may wait at the door; one more is refused with 429 and Retry-After."""
    queue_timeout_s: float = 30.0
    """A request that waited this long at the door is refused with 429."""
    keepalive_comment_s: float = 15.0
    """An SSE comment is sent whenever a stream has been silent this long."""
    stall_timeout_s: float = 300.0
    """A request whose engine produces nothing for this long fails with `EngineStalled`. Covers
    the engine's queue and the prefill of the longest prompt."""
    readiness_timeout_s: float = 1.0
    """An engine that does not report its status within this time is not ready."""
    shutdown_grace_s: float = 30.0
    """Running requests may finish within this time after a stop signal; then they are ended."""
    cache_secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Key of the tenants' cache salts. The default is new in every process: caches that outlive
    it, or are shared by several, need a fixed one."""

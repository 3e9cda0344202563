"""The sections of the deployment file that say where the door is, and how hard one may knock.

Values only; `rules` holds what they must not be together, the package `gateway` obeys them.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from steelyard.settings._section import Section
from steelyard.settings.access import AdminSettings, AuthSettings
from steelyard.settings.hosts import Host, is_loopback
from steelyard.settings.quantities import LARGEST_BYTES, BadValue, Count, Seconds, Size

__all__ = ["BatchesSettings", "CorsSettings", "GatewaySettings", "LimitsSettings"]


def _origin(value: str) -> str:
    if value == "*":
        return value
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # brackets or a port out of range
        is_whole = False
    if not is_whole or value != f"{parts.scheme}://{parts.netloc}" or "@" in parts.netloc:
        raise BadValue(
            "holds an entry that is no origin",
            "use entries like https://host or http://host:port, without a path, or *",
        )
    return value


class CorsSettings(Section):
    """Which web pages may call the API from a browser."""

    origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = Field(default=(), strict=False)
    """Allowed origins, such as `https://app.example.com`; `*` allows all; empty switches CORS
    off."""


class LimitsSettings(Section):
    """What one client may send, hold or ask for. All limits are refused early and cheaply."""

    max_header_bytes: Annotated[int, Size(1024, 1024**2)] = 32 * 1024
    """Request line and header fields together; more is refused with 431."""
    header_timeout_s: Seconds = 10.0
    """From the first byte of a request, or the opening of a connection, to the header's end."""
    max_body_bytes: Annotated[int, Size(1024, 1024**3)] = 8 * 1024**2
    """Body of a request; more is refused with 413. A prompt of 100,000 tokens is about 0.5 MB."""
    body_timeout_s: Seconds = 30.0
    """From the header's end to the body's end."""
    idle_timeout_s: Seconds = 75.0
    """A kept-alive connection without a request is closed after this long."""
    write_timeout_s: Seconds = 30.0
    """A client that takes nothing of what waits for it is disconnected after this long."""
    max_connections: Count = 1024
    """Open connections; one more is closed at once."""
    max_queue: Count = 256
    """Requests that may wait at the door; one more is refused with 429 and Retry-After."""
    queue_timeout_s: Seconds = 30.0
    """A request that waited this long at the door is refused with 429."""
    max_tokens: Count | None = None
    """Highest `max_tokens` a request may ask for; `null` leaves it to the model's context."""
    default_max_tokens: Count | None = None
    """`max_tokens` of chat requests that name none; `null` is all that limit and context leave.
    Text completions that name none get 16, as OpenAI documents it."""
    max_n: Annotated[int, Field(ge=1, le=1024)] = 16
    """Choices per prompt."""
    max_sequences: Annotated[int, Field(ge=1, le=65_536)] = 64
    """Choices times prompts of one request: each is a sequence for the engine."""
    max_messages: Count = 4096
    """Messages of one conversation."""
    max_logprobs: Annotated[int, Field(ge=0, le=1024)] = 20
    """Most likely tokens reported per position."""
    max_stop: Annotated[int, Field(ge=0, le=1024)] = 16
    """Stop strings, and stop token ids, per request."""
    max_stop_chars: Annotated[int, Field(ge=1, le=65_536)] = 256
    """Length of one stop string; this much text may be held back."""
    max_logit_bias: Annotated[int, Field(ge=0, le=1_000_000)] = 1024
    """Entries of `logit_bias`."""


class BatchesSettings(Section):
    """Files of requests that are worked through when nobody else needs the engine."""

    folder: str | None = None
    """Where files, results and progress are kept; made when missing. `null` switches `/v1/files`
    and `/v1/batches` off. Needs `gateway.workers: 1`, and a folder for each service."""
    concurrency: Annotated[int, Field(ge=1, le=4096)] = 8
    """Requests of batches at the engine at once. They have the lowest priority there, but each
    takes memory for its tokens while it runs."""
    max_file_bytes: Annotated[int, Size(1024, 1024**4)] = 64 * 1024**2
    """Of one uploaded file; more is refused with 413."""
    max_lines: Count = 50_000
    """Requests of one batch."""
    max_tenant_bytes: Annotated[int, Size(1024, LARGEST_BYTES)] = 4 * 1024**3
    """All files of one tenant, results included; further uploads are refused."""
    max_open: Count = 16
    """Batches of one tenant that have not ended."""


class GatewaySettings(Section):
    """The OpenAI-compatible door."""

    host: Host = "127.0.0.1"
    """Address to listen on. `0.0.0.0` or `::` is every interface, and needs `insecure` as long as
    `auth.mode` is `none`."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    """Port to listen on; 0 takes a free one, which the start-up banner names."""
    insecure: bool = False
    """Yes, serve other machines although everyone who reaches the port may use the model. Right
    inside a container or a private network behind a proxy that authenticates."""
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    """Processes that serve the port together, each with one core's worth of requests. Queues and
    connections are counted in each of them; so are tenants' budgets, unless `tenants.redis` is
    set."""
    auth: AuthSettings = AuthSettings()
    admin: AdminSettings = AdminSettings()
    metrics: Literal["auto", "door", "admin"] = "auto"
    """Where `/metrics` is: on the listener of `gateway.admin`, on this port, or, with `auto`, on
    that listener when there is one. This port asks for the grant `llm:admin` first, unless
    `auth.mode` is `none`."""
    cors: CorsSettings = CorsSettings()
    limits: LimitsSettings = LimitsSettings()
    batches: BatchesSettings = BatchesSettings()
    keepalive_comment_s: Seconds = 15.0
    """An SSE comment is sent whenever a stream has been silent this long, so that proxies do not
    take a long prompt for a dead connection."""
    stall_timeout_s: Seconds = 300.0
    """A request whose engine produces nothing for this long fails. Covers the engine's queue and
    the reading of the longest prompt."""
    shutdown_grace_s: Seconds = 30.0
    """After SIGTERM, running requests may finish within this time; then they are ended."""

    @property
    def is_loopback(self) -> bool:
        """True when only this machine can connect."""
        return is_loopback(self.host)

"""Settings of a connection to an engine over HTTP, resolved. `cli.wiring` fills them in."""

from dataclasses import dataclass, field

__all__ = ["HttpConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Where an endpoint is, and how much of anything it may take."""

    url: str = "http://localhost"
    """Without `/v1` and without a slash at the end."""
    unix_path: str | None = None
    """A socket to connect to instead of the host in `url`; None: that host."""
    api_key: str | None = field(default=None, repr=False)
    """Sent as a bearer token; None: nothing is."""
    ca_file: str | None = None
    """Certificates to trust instead of the system's; None: the system's."""
    connect_timeout_s: float = 5.0
    silence_timeout_s: float = 120.0
    """A stream that brings nothing for so long is given up."""
    health_s: float = 2.0
    """Between two looks at an endpoint."""
    health_timeout_s: float = 5.0
    probe_timeout_s: float = 60.0
    """Of the first real token, which some servers compile kernels for."""
    max_event_bytes: int = 16 * 1024 * 1024
    """The first event may repeat the prompt's ids: a million of them are about 7 MB."""
    max_answer_bytes: int = 16 * 1024 * 1024
    """Of an answer that is no stream."""

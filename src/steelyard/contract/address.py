"""Where an engine listens, as text: `unix:/path/to/socket` or `tcp:host:port`.

Only the words; `engine.listener` opens such an address and `backends.embedded` connects to it.
"""

from dataclasses import dataclass

from steelyard.contract.errors import SettingsError

__all__ = ["MAX_UNIX_PATH_BYTES", "Address", "TcpAddress", "UnixAddress", "parse_address"]

MAX_UNIX_PATH_BYTES = 103
"""The kernel's own limit is 107 bytes on Linux and 103 on macOS."""


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket file; who may write the file may connect."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host name or IP address (IPv6 without brackets) and a port in [1, 65535]."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"


Address = UnixAddress | TcpAddress


def parse_address(text: str) -> Address:
    """Read an address. Raises `SettingsError` naming `listen` and the fix."""
    kind, _, rest = text.partition(":")
    if kind == "unix" and rest:
        return _unix(rest)
    if kind == "tcp":
        host, _, port = rest.rpartition(":")
        if host and port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535:
            return TcpAddress(host.removeprefix("[").removesuffix("]"), int(port))
    raise SettingsError(
        f"{text!r} is no address", param="listen", fix="write unix:/path or tcp:host:port"
    )


def _unix(path: str) -> UnixAddress:
    if "\0" in path:
        raise SettingsError("a socket path cannot hold a NUL character", param="listen")
    length = len(path.encode())
    if length > MAX_UNIX_PATH_BYTES:
        raise SettingsError(
            f"the socket path is {length} bytes long, the limit is {MAX_UNIX_PATH_BYTES}",
            param="listen",
            fix="choose a shorter folder",
        )
    return UnixAddress(path)

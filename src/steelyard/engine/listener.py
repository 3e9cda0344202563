"""Opens the socket an engine listens on, and removes its file at the end.

A Unix socket is created with mode 0600, so only this user's processes can connect. TCP is for
loopback only: the wire has no authentication and no encryption yet, so any other interface is
refused. Frames and connections are `engine.transport`'s business.
"""

import contextlib
import errno
import ipaddress
import os
import socket
import stat
from pathlib import Path

from steelyard.contract.address import Address, TcpAddress, UnixAddress
from steelyard.contract.errors import SettingsError

__all__ = ["Listener"]

_BACKLOG = 64


class Listener:
    """A bound, listening, non-blocking socket.

    Raises `OSError` when the address cannot be had now, `SettingsError` when it must not be.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._inode: int | None = None
        self.socket = self._open(address)

    def close(self) -> None:
        """Stop listening; remove the socket file unless another process has replaced it."""
        self.socket.close()
        if isinstance(self.address, UnixAddress):
            path = Path(self.address.path)
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == self._inode:
                    path.unlink()

    def _open(self, address: Address) -> socket.socket:
        if isinstance(address, TcpAddress):
            return _open_tcp(address)
        _remove_stale(Path(address.path))
        listening = _open_unix(address.path)
        self._inode = Path(address.path).stat().st_ino
        return listening


def _open_tcp(address: TcpAddress) -> socket.socket:
    if not _is_loopback(address.host):
        raise SettingsError(
            f"{address.host} is reachable from other machines, and this wire has no authentication",
            param="listen",
            fix="listen on 127.0.0.1 or on a unix: path",
        )
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    # Lets a restarted engine have the port while old connections linger in TIME_WAIT.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return _listen(listening, (address.host, address.port))


def _open_unix(path: str) -> socket.socket:
    # The file takes its mode from the umask at bind, so nobody can connect before a later chmod.
    before = os.umask(0o177)
    try:
        return _listen(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), path)
    finally:
        os.umask(before)


def _listen(listening: socket.socket, where: str | tuple[str, int]) -> socket.socket:
    try:
        listening.bind(where)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _remove_stale(path: Path) -> None:
    """Delete a socket file nobody listens on; refuse to touch anything else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SettingsError(f"{path} exists and is not a socket", param="listen")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except TimeoutError:
            pass
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

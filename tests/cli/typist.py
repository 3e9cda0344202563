"""A person at a terminal: types, reads the screen, presses Ctrl-C."""

import contextlib
import fcntl
import os
import pty
import re
import subprocess
import termios
import threading

from .stage import FAKE, ROOT, Stage, wait_for

__all__ = ["CTRL_C", "CTRL_D", "Typist"]

CTRL_C, CTRL_D = "\x03", "\x04"

_STEERING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")


class Typist:
    """Runs a command in a terminal of its own; a context manager that hangs up at the end."""

    def __init__(self, stage: Stage, *arguments: str, program: tuple[str, ...] = FAKE) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self._shown = bytearray()

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*program, *arguments],
            cwd=ROOT,
            env={**stage.environment, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def raw(self) -> str:
        """Everything the command has sent to the terminal."""
        return self._shown.decode(errors="replace")

    @property
    def screen(self) -> str:
        """The same without what steers the terminal."""
        return _STEERING.sub("", self.raw)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def await_text(self, text: str, *, limit_s: float = 20.0) -> None:
        """Return once `text` is on the screen."""
        try:
            wait_for(lambda: text in self.screen, limit_s=limit_s)
        except AssertionError:
            raise AssertionError(f"no {text!r} on the screen:\n{self.screen}") from None

    def forget(self) -> None:
        """What was shown before does not count any more."""
        self._shown.clear()

    def wait(self, *, limit_s: float = 20.0) -> int:
        """The command's exit status."""
        status = self.process.wait(limit_s)
        self._reader.join(limit_s)
        return status

    def __enter__(self) -> "Typist":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        os.close(self._ours)

    def _read(self) -> None:
        # EIO: nobody has the other end open any more.
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65_536):
                self._shown += data

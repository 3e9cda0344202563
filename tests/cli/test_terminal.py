"""What commands do to a terminal: bars that vanish, colours only where they are wanted."""

import re
import signal

import pytest

from .stage import Stage
from .typist import CTRL_C, Typist

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def final_lines(raw: str) -> list[str]:
    """What is left on the screen: a small terminal that knows what bars use."""
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", raw):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b["):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b") and part != "\r":
            lines[row] += part
    return [line.rstrip() for line in lines if line.strip()]


def test_a_bar_follows_the_start_and_vanishes(stage: Stage) -> None:
    stage.fake_model(load_s=0.6)
    with Typist(stage, "run", "hi", "-m", str(stage.model), "--max-tokens", "3") as typist:
        typist.await_text("Starting the engine: pretending to load weights")
        assert typist.wait() == 0
        assert typist.raw.count(HIDE) == typist.raw.count(SHOW) > 0
        left = final_lines(typist.raw)
    assert len(left) == 1, "the answer and nothing else"
    assert "Starting" not in left[0]


@pytest.mark.parametrize(
    ("command", "stop"),
    [
        ("serve", CTRL_C),
        ("run", signal.SIGTERM),
        pytest.param("serve", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("run", CTRL_C, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_start_leaves_the_terminal_as_it_was(
    stage: Stage, command: str, stop: str | signal.Signals
) -> None:
    stage.fake_model(load_s=60)
    arguments = {
        "serve": ("serve", str(stage.model), "--port", "0"),
        "run": ("run", "hi", "-m", str(stage.model)),
    }
    with Typist(stage, *arguments[command]) as typist:
        typist.await_text("Starting the engine: pretending")
        if isinstance(stop, str):
            typist.type(stop)
        else:
            typist.process.send_signal(stop)
        status = typist.wait(limit_s=5)
        assert status == (0 if command == "serve" else 130 if stop == CTRL_C else 143)
        assert typist.raw.count(HIDE) == typist.raw.count(SHOW)
        assert typist.raw.rindex(SHOW) > typist.raw.rindex(HIDE)
        left = "\n".join(final_lines(typist.raw))
    assert "Starting the engine" not in left
    assert "Traceback" not in left
    assert stage.leftovers == []


def test_lines_of_the_log_stand_above_the_bar(stage: Stage) -> None:
    stage.fake_model(load_s=1.0)
    with Typist(stage, "serve", str(stage.model), "--port", "0") as typist:
        typist.await_text("is ready after")
        typist.process.send_signal(signal.SIGTERM)
        assert typist.wait() == 0
        left = final_lines(typist.raw)
    assert any("replica engine-0: spawn" in line for line in left)
    assert not any("Starting the engine" in line for line in left)


def test_colours_are_left_out_where_they_are_not_wanted(stage: Stage) -> None:
    broken = ("serve", "--set", "backend=nope")
    with Typist(stage, *broken) as typist:
        assert typist.wait() == 1
        assert COLOUR.search(typist.raw)
    stage.variables["NO_COLOR"] = "1"
    with Typist(stage, *broken) as typist:
        assert typist.wait() == 1
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", typist.raw)
    assert "\x1b" not in stage.run(*broken).stderr


def test_an_answer_cannot_steer_the_terminal(stage: Stage) -> None:
    with Typist(stage, "run", "hi", "-m", str(stage.model), "--max-tokens", "500") as typist:
        assert typist.wait() == 0
        answer = typist.raw.rpartition("\x1b[2K")[2]  # what follows the bar's last act
    assert len(answer) > 200
    assert not {character for character in answer if ord(character) < 32} - set("\r\n\t")

"""`steelyard chat` for people at a terminal and for programs at a pipe."""

import os
import signal

import psutil
import pytest

from .stage import Stage, is_gone, wait_for
from .typist import CTRL_C, CTRL_D, Typist


def talk(stage: Stage, *options: str) -> Typist:
    return Typist(stage, "chat", str(stage.model), "--temperature", "0", *options)


def test_a_person_asks_is_answered_and_leaves(stage: Stage) -> None:
    with talk(stage, "--max-tokens", "6") as typist:
        typist.await_text("Ctrl-D ends.")
        typist.await_text("> ")
        for goodbye in ("hello", "/bye"):
            typist.forget()
            typist.type(f"{goodbye}\n")
            typist.await_text(f"{goodbye}\n")
            if goodbye == "hello":
                typist.await_text("> ")
        assert typist.wait() == 0
    assert stage.leftovers == []


def test_ctrl_d_and_the_end_of_the_input_end_it(stage: Stage) -> None:
    with talk(stage) as typist:
        typist.await_text("> ")
        typist.type(CTRL_D)
        assert typist.wait() == 0
    assert stage.leftovers == []


def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on(stage: Stage) -> None:
    stage.fake_model(step_s=0.02)
    with talk(stage, "--max-tokens", "40") as typist:
        typist.await_text("> ")
        engine = _engine(typist)
        typist.type("first\n")
        wait_for(lambda: len(typist.screen.partition("first\n")[2]) > 3)
        typist.type(CTRL_C)
        typist.await_text("(stopped)")
        typist.forget()
        typist.type("second\n")
        typist.await_text("second\n")
        typist.await_text("\n> ")
        assert "(stopped)" not in typist.screen
        assert not is_gone(engine), "Ctrl-C in the terminal does not reach the engine"
        typist.type("/bye\n")
        assert typist.wait() == 0
    assert stage.leftovers == []


def test_ctrl_c_at_the_prompt_drops_the_line_and_ends_the_second_time(stage: Stage) -> None:
    with talk(stage) as typist:
        typist.await_text("> ")
        typist.forget()
        typist.type(f"half a li{CTRL_C}")
        typist.await_text("Ctrl-D ends.")
        assert typist.process.poll() is None
        typist.type(CTRL_C)
        assert typist.wait() == 130
        assert "Traceback" not in typist.screen
    assert stage.leftovers == []


@pytest.mark.parametrize(
    "when", ["waiting", "answering", pytest.param("loading", marks=pytest.mark.slow)]
)
def test_sigterm_ends_it_whatever_it_does(stage: Stage, when: str) -> None:
    stage.fake_model(load_s=60 if when == "loading" else 0, step_s=0.02)
    with talk(stage) as typist:
        if when != "loading":
            typist.await_text("> ")
        if when == "answering":
            typist.type("hello\n")
            wait_for(lambda: len(typist.screen.partition("hello\n")[2]) > 3)
        engine = _engine(typist)
        typist.process.send_signal(signal.SIGTERM)
        assert typist.wait() == 143
        assert "Traceback" not in typist.screen
    assert is_gone(engine)
    assert stage.leftovers == []


def test_an_engine_that_died_meanwhile_is_waited_for(stage: Stage) -> None:
    with talk(stage, "--max-tokens", "5") as typist:
        typist.await_text("> ")
        os.kill(_engine(typist), signal.SIGKILL)
        typist.forget()
        typist.type("hello\n")
        typist.await_text("\n> ")
        assert "error:" not in typist.screen.partition("hello\n")[2]
        typist.type("/bye\n")
        assert typist.wait() == 0


def test_a_pipe_gets_answers_and_nothing_else(stage: Stage) -> None:
    once = stage.run("chat", str(stage.model), "--temperature=0", "--max-tokens=5", stdin=b"hi\n")
    assert once.process.returncode == 0
    assert once.stdout.endswith("\n") and once.stderr == ""
    again = b"hi\n\n/new\nhi\n/bye\nnever answered \xff\xfe\n"
    twice = stage.run("chat", str(stage.model), "--temperature=0", "--max-tokens=5", stdin=again)
    assert twice.stdout == 2 * once.stdout, "/new forgets what was said"
    assert stage.leftovers == []


def test_a_conversation_is_remembered(stage: Stage) -> None:
    service = stage.serve()
    url = f"http://127.0.0.1:{service.port}"
    options = ("--temperature=0", "--max-tokens=5", "--system", "Be brief.")
    assert stage.run("chat", "--url", url, *options, stdin=b"hi\nhi\n").process.returncode == 0
    alone = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    _, first = service.ask("/tokenize", {"model": "tiny", "messages": alone})
    total = service.metric('steelyard_prompt_tokens_total{model="tiny"}')
    assert total > 3 * first["count"] - 10, "the second question came with the first"


def _engine(typist: Typist) -> int:
    found: list[int] = []

    def is_there() -> bool:
        children = psutil.Process(typist.process.pid).children()
        found[:] = [child.pid for child in children if "engine.process" in str(child.cmdline())]
        return bool(found)

    wait_for(is_there)
    return found[0]

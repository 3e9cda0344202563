"""`steelyard run`: the answer on standard output, everything else elsewhere, and a clean end."""

import os
import shlex
import signal
import subprocess
import sys

import pytest

from .stage import FAKE, ROOT, Stage, is_gone, wait_for


def test_only_the_answer_is_printed(stage: Stage) -> None:
    command = stage.run("run", "hello", "-m", str(stage.model), "--max-tokens", "5")
    assert command.process.returncode == 0
    assert command.stderr == ""
    assert command.stdout.endswith("\n") and len(command.stdout) > 1
    assert stage.leftovers == []


def test_a_prompt_comes_from_standard_input_and_may_be_in_any_script(stage: Stage) -> None:
    text = "Grüße, 世界! 🧪"
    options = ("-m", str(stage.model), "--max-tokens", "8")
    given = stage.run("run", text, *options)
    piped = stage.run("run", "-", *options, stdin=text.encode())
    assert given.process.returncode == piped.process.returncode == 0
    assert given.stdout == piped.stdout


def test_a_terminal_that_knows_few_characters_gets_the_others_replaced(stage: Stage) -> None:
    stage.variables["PYTHONIOENCODING"] = "ascii"
    command = stage.run("run", "hi", "-m", str(stage.model), "--max-tokens", "50")
    assert command.process.returncode == 0
    assert "?" in command.stdout


def test_a_running_server_gives_the_same_answers(stage: Stage) -> None:
    service = stage.serve()
    url = f"http://127.0.0.1:{service.port}"
    for options in (("hello", "--system", "Be brief."), ("hello", "--raw")):
        ours = stage.run("run", *options, "-m", str(stage.model), "--max-tokens", "9")
        theirs = stage.run("run", *options, "--url", f"{url}/v1/", "--max-tokens", "9")
        assert theirs.process.returncode == 0, theirs.stderr
        assert theirs.stdout == ours.stdout != "\n"
    assert service.metric('steelyard_requests_received_total{model="tiny"}') == 2


@pytest.mark.parametrize(
    ("number", "status", "when"),
    [
        (signal.SIGINT, 130, "answering"),
        (signal.SIGTERM, 143, "loading"),
        pytest.param(signal.SIGINT, 130, "loading", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "answering", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_command_ends_at_once_and_cleanly(
    stage: Stage, number: int, status: int, when: str
) -> None:
    stage.fake_model(load_s=60 if when == "loading" else 0, step_s=0.02)
    command = stage.start("run", "hi", "-m", str(stage.model), "--max-tokens", "4000")
    engine = command.engine_pid
    if when == "answering":
        wait_for(lambda: command.stdout)
    command.send(number)
    assert command.wait(limit_s=5) == status
    assert "Traceback" not in command.stderr
    assert is_gone(engine)
    assert stage.leftovers == []


def test_an_interrupted_answer_from_a_server_is_given_up_there(stage: Stage) -> None:
    stage.fake_model(step_s=0.02)
    service = stage.serve()
    url = f"http://127.0.0.1:{service.port}"
    command = stage.start("run", "hi", "--url", url, "--max-tokens", "3000")
    wait_for(lambda: command.stdout)
    command.send(signal.SIGINT)
    assert command.wait(limit_s=5) == 130
    running = 'steelyard_engine_running{replica="0"}'
    wait_for(lambda: service.metric(running) == 0, limit_s=2)


def test_a_reader_that_leaves_ends_the_command_quietly(stage: Stage) -> None:
    stage.fake_model(step_s=0.01)
    arguments = ["run", "hi", "-m", str(stage.model), "--max-tokens", "2000"]
    read_end, write_end = os.pipe()
    command = subprocess.Popen(
        [*FAKE, *arguments],
        cwd=ROOT,
        env=stage.environment,
        stdout=write_end,
        stderr=subprocess.PIPE,
    )
    os.close(write_end)
    assert os.read(read_end, 1)
    os.close(read_end)
    _, printed = command.communicate(timeout=20)
    assert command.returncode == 1
    assert printed == b""
    assert stage.leftovers == []


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_is_no_trouble(stage: Stage, closed: int) -> None:
    arguments = ["run", "hi", "-m", str(stage.model), "--max-tokens", "3"]
    line = shlex.join([*FAKE, *arguments]) + f" {closed}>&-"
    done = subprocess.run(
        ["sh", "-c", line], cwd=ROOT, env=stage.environment, capture_output=True, timeout=30
    )
    assert done.returncode == 0
    assert bool(done.stdout) == (closed == 2)
    assert done.stderr == b""


def test_an_engine_that_dies_in_the_middle_is_told(stage: Stage) -> None:
    stage.fake_model(step_s=0.02)
    command = stage.start("run", "hi", "-m", str(stage.model), "--max-tokens", "2000")
    engine = command.engine_pid
    wait_for(lambda: command.stdout)
    os.kill(engine, signal.SIGKILL)
    assert command.wait() == 1
    assert "error: " in command.stderr and "Traceback" not in command.stderr
    assert stage.leftovers == []


@pytest.mark.slow
def test_without_a_compiler_the_engine_is_slow_and_says_so(stage: Stage) -> None:
    stage.variables.update(PATH=str(stage.folder), CXX="")
    program = (sys.executable, "-m", "steelyard.cli")
    command = stage.run("run", "hello", "-m", str(stage.model), "--max-tokens=3", program=program)
    assert command.process.returncode == 0, command.stderr
    assert "using slow PyTorch operations" in command.stderr
    wanted = stage.run(
        "run", "hi", "-m", str(stage.model), "--set=engine.kernels=native", program=program
    )
    assert wanted.process.returncode == 1
    assert "engine.kernels" in wanted.stderr and "install a C++ compiler" in wanted.stderr
    assert stage.leftovers == []

"""A start that cannot work ends with a sentence, a way out and the right status, and at once."""

import logging
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from steelyard.cli.main import main

from .stage import REAL, Command, Stage


@dataclass(frozen=True)
class BadStart:
    """Arguments of `steelyard`, and words that the explanation must hold."""

    name: str
    arguments: tuple[str, ...]
    words: tuple[str, ...]
    status: int = 1


def setting(name: str, *sets: str, words: tuple[str, ...]) -> BadStart:
    return BadStart(name, ("serve", *(f"--set={text}" for text in sets)), words)


ROWS = [
    BadStart("a file that is not there", ("serve", "/nope/x.gguf"), ("/nope/x.gguf", "no file")),
    BadStart("an unknown model", ("serve", "no-such-model"), ("no-such-model", "smollm2-135m")),
    BadStart("a deployment file that is not there", ("serve", "-c", "/nope.yaml"), ("/nope.yaml",)),
    BadStart("no model but a folder", ("run", "hi", "-m", "/tmp"), ("/tmp",)),
    BadStart("a word as port", ("serve", "--port", "many"), ("--port",), status=2),
    BadStart("an unknown option", ("serve", "--prot", "1"), ("--prot", "--port"), status=2),
    BadStart("an unknown command", ("server",), ("server",), status=2),
    BadStart("port 70000", ("serve", "--port", "70000"), ("gateway.port", "70000")),
    BadStart("a host of nobody", ("serve", "--host", "192.0.2.1"), ("gateway.host", "insecure")),
    BadStart("no prompt", ("run",), ("PROMPT",), status=2),
    BadStart(
        "a raw system prompt", ("run", "x", "--raw", "--system", "y"), ("--raw", "--system"), 2
    ),
    BadStart("no URL", ("run", "x", "--url", "localhost:8000"), ("--url", "http://host:8000")),
    BadStart("nobody there", ("run", "x", "--url", "http://127.0.0.1:9"), ("refused", "serve")),
    BadStart("an unknown host", ("chat", "--url", "http://no.invalid"), ("http://no.invalid",)),
    setting("an unknown backend", "backend=vlm", words=("backend", "embedded")),
    setting("no environment of vLLM", "backend=vllm", words=("vllm.python", "needs it")),
    setting("no endpoint", "backend=remote", words=("remote.url", "needs it")),
    setting("an unknown key", "gateway.prot=1", words=("gateway.prot", "gateway.port")),
    setting(
        "several problems",
        "gateway.port=x",
        "batching.min_batch=0",
        "nope=1",
        words=("3 settings", "gateway.port: ", "batching.min_batch: ", "nope: "),
    ),
    setting("a tiny cache", "kv_cache.memory=1B", words=("kv_cache.memory",)),
    setting("an open door", "gateway.host=0.0.0.0", words=("gateway.host", "insecure")),
    setting("no secret", "kv_cache.salt_secret_file=/nope", words=("salt_secret_file", "read")),
    setting("no sample file", "telemetry.sample_file=/proc/x", words=("sample_file", "/proc/x")),
    setting("a folder as sample file", "telemetry.sample_file=/tmp", words=("sample_file",)),
]


@pytest.fixture
def process_as_before() -> Iterator[None]:
    """Undoes what a command does to its process: handlers of signals, and of the log."""
    root = logging.getLogger()
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for number, handler in signals.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_bad_start_is_explained(
    row: BadStart,
    stage: Stage,
    process_as_before: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # In this process: one of its own would take a second, most of it to start Python.
    monkeypatch.setattr("sys.argv", ["steelyard", *row.arguments])
    monkeypatch.setenv("STEELYARD_CACHE_DIR", str(stage.cache))
    monkeypatch.setenv("STEELYARD_GATEWAY__PORT", "0")
    monkeypatch.setenv("TMPDIR", str(stage.temporary))
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capfd.readouterr()
    check_words(ended.value.code, printed.out, printed.err, row.status, row.words)
    assert stage.leftovers == []


def check(command: Command, status: int, words: tuple[str, ...]) -> None:
    check_words(command.process.returncode, command.stdout, command.stderr, status, words)


def check_words(
    status: object, stdout: str, stderr: str, wanted: int, words: tuple[str, ...]
) -> None:
    assert status == wanted, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    assert "\x1b" not in stderr, "no terminal, no colours"
    for word in words:
        assert word in stderr
    if wanted == 1:
        assert "error: " in stderr
    assert "spawn" not in stderr, "the engine was not even started"


def test_a_port_in_use_is_told_before_a_model_is_fetched(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = stage.run("serve", "org/never-fetched", "--port", port, program=REAL)
    check(command, 1, ("gateway.port", port, "in use", "another port"))
    assert not stage.cache.exists()


def damaged(path: Path, change: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


def test_a_truncated_model_is_named(stage: Stage) -> None:
    damaged(stage.model, lambda content: content.__delitem__(slice(-1000, None)))
    check(stage.run("serve", str(stage.model), "--port=0"), 1, (str(stage.model),))


def test_a_model_with_one_wrong_bit_is_named(stage: Stage, smollm2_path: Path) -> None:
    """Where a checksum is published, that is: nothing else could tell."""
    copy = stage.folder / smollm2_path.name
    shutil.copyfile(smollm2_path, copy)
    with copy.open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)[0]
        file.seek(50_000_000)
        file.write(bytes([byte ^ 1]))
    command = stage.run("serve", str(copy), "--port=0")
    check(command, 1, (str(copy), "SHA-256", "fetch the model again"))


def test_a_path_too_long_for_sockets_is_told(stage: Stage) -> None:
    deep = stage.temporary / ("x" * 90)
    deep.mkdir()
    stage.variables["TMPDIR"] = str(deep)
    check(stage.run("run", "x", "-m", str(stage.model)), 1, ("too long", "TMPDIR"))
    assert list(deep.iterdir()) == []


def test_a_cache_folder_that_cannot_be_written_is_named(stage: Stage) -> None:
    stage.variables["STEELYARD_CACHE_DIR"] = "/proc/steelyard"
    command = stage.run("serve", "smollm2-135m", "--port=0", program=REAL)
    check(command, 1, ("/proc/steelyard", "another folder"))


@contextmanager
def tiny_disk(folder: Path) -> Iterator[Path]:
    """A disk of 8 MB; skips the test where we may not mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_under_the_cache_is_told(stage: Stage) -> None:
    with tiny_disk(stage.folder / "disk") as disk:
        stage.variables["STEELYARD_CACHE_DIR"] = str(disk / "cache")
        command = stage.run("serve", "smollm2-135m", "--port=0", program=REAL)
        check(command, 1, (str(disk), "MB are free", "free space"))


def test_a_closed_standard_input_is_told(stage: Stage) -> None:
    command = stage.run("run", "-", "-m", str(stage.model), stdin=None)
    check(command, 1, ("standard input", "closed"))


@pytest.mark.parametrize("where", ["argument", "stdin"])
def test_bytes_that_are_no_text_are_told(stage: Stage, where: str) -> None:
    prompt = "a\udcff" if where == "argument" else "-"
    command = stage.run("run", prompt, "-m", str(stage.model), stdin=b"a\xff")
    check(command, 1, ("not UTF-8",))


def test_a_prompt_beyond_the_context_is_told_with_numbers(stage: Stage) -> None:
    stage.fake_model(context_tokens=64)
    command = stage.run("run", "hi " * 100, "-m", str(stage.model))
    assert command.process.returncode == 1
    assert "64 tokens" in command.stderr


def test_an_engine_that_cannot_load_is_told_once(stage: Stage) -> None:
    (stage.folder / "fake.json").write_text("{}x")
    command = stage.run("run", "hi", "-m", str(stage.model))
    assert command.process.returncode == 1
    assert command.stderr.startswith(f"error: {stage.folder}/fake.json: ")
    assert stage.leftovers == []


def test_a_server_that_answers_with_errors_is_quoted(stage: Stage) -> None:
    service = stage.serve()
    url = f"http://127.0.0.1:{service.port}"
    command = stage.run("run", "hi", "--url", url, "-m", "no-such-model")
    check(command, 1, ("404", "no-such-model", "Use tiny"))


def test_a_server_that_hangs_up_in_the_middle_is_told(stage: Stage) -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"half an"}}]}\n\n'
    with one_answer(b"content-type: text/event-stream\r\n", event) as url:
        command = stage.run("run", "hi", "--url", url, "-m", "x", program=REAL)
    assert command.process.returncode == 1
    assert command.stdout == "half an"
    assert "before it was complete" in command.stderr


@contextmanager
def one_answer(fields: bytes, body: bytes) -> Iterator[str]:
    """The address of a server that answers one request, and is gone."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(65_536)
                client.sendall(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n" + body)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65_536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)

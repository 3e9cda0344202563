"""The command: starts, answers, ends on SIGTERM, and says how exact it was."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from steelyard.lab.mock import read_truth

from .wire import ask, chat

_STEELYARD = [sys.executable, "-m", "steelyard.cli"]


async def test_the_command_serves_from_a_file_and_flags_until_it_is_told_to_stop(
    tmp_path: Path,
) -> None:
    file, truth = tmp_path / "mock.yaml", tmp_path / "truth.jsonl"
    file.write_text("ttft_ms: 30\noutput_tokens: 9\n")
    command = [*_STEELYARD, "mock", "-c", str(file), "--port=0", f"--truth={truth}", "--itl-ms=1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    banner = process.stderr.readline()
    found = re.search(r"ready at (http://\S+)/v1", banner)
    assert found, banner
    assert "ttft_ms=30" in banner
    reply = await chat(found[1])
    timing = (await ask(found[1], "GET", "/mock/timing")).json
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=20)
    assert process.returncode == 0
    assert len(reply.text.split()) == 9
    assert timing["tokens"] == 9
    assert re.search(r"own timing error of 9 tokens: .* p99 ", rest), rest
    assert len(read_truth(truth)[1]) == 1


def test_a_wrong_value_is_one_sentence() -> None:
    done = subprocess.run([*_STEELYARD, "mock", "--itl-ms", "x"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "itl_ms: 'x' is no distribution" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_tokenizer_counts_what_clients_should(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    from steelyard.lab.mock.text import word

    folder = tmp_path / "tokenizer"
    subprocess.run([*_STEELYARD, "mock", "tokenizer", str(folder)], check=True)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode(f"{word(3)} {word(70)}").ids == [3, 70]
    assert len(tokenizer.encode("Words nobody knows").ids) == 3
    assert "chat_template" in json.loads((folder / "tokenizer_config.json").read_text())

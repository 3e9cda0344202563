"""The examples run as they are, but for the address and the model's name."""

import subprocess
import sys
from pathlib import Path

from tests.gateway.batches.shelf import batching
from tests.gateway.doors import open_door

from .source_tree import ROOT


def test_the_client_example_gets_a_whole_answer_and_the_same_as_a_stream() -> None:
    text = (ROOT / "examples" / "openai_client.py").read_text()
    with open_door() as door:
        here = text.replace("http://127.0.0.1:8000", door.url).replace("smollm2-135m", "fake")
        assert here.count("fake") == 2
        done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole, streamed = done.stdout.splitlines()
    assert whole == streamed
    assert whole.isalpha()


def test_the_batch_example_gets_all_its_answers(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "openai_batch.py").read_text()
    with open_door(batching(tmp_path)) as door:
        here = text.replace("http://127.0.0.1:8000", door.url).replace("smollm2-135m", "fake")
        here = here.replace('"messages"', '"max_tokens": 5, "messages"')
        done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert names == ["question-0", "question-1", "question-2"]

"""The examples run as they are, but for the address and the model's name."""

import subprocess
import sys

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

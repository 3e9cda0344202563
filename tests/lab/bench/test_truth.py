"""Acceptance: what is reported is what the mock knows to be true."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from steelyard.lab.result import read_result

from .conftest import Mock, bench


def test_every_percentile_is_the_true_one(
    mock_process: Callable[..., Mock], tmp_path: Path
) -> None:
    mock = mock_process(ttft_ms="gamma:60,0.2", itl_ms="gamma:6,0.3", role_chunk_ms=20)
    file = tmp_path / "result.json"
    flags = ("-r", "60", "-n", "100", "--prompt-tokens", "30", "--output-tokens", "10")
    done = bench("run", mock.url, *flags, "--warm-up", "0", "--json", str(file))
    if done.exit_code == 3 and "other programs kept the processor" in done.stdout:
        pytest.skip("this machine is too busy to measure on")
    assert done.exit_code == 0, done.output
    result = read_result(file)
    truth = [request for request in mock.truth() if request.output_tokens == 10]
    assert result.counts.complete == len(truth) == 100
    sent_ms = [np.array(request.sent_ns) / 1e6 for request in truth]
    true = {
        "ttft_sent_ms": [times[0] for times in sent_ms],
        "itl_ms": np.concatenate([np.diff(times) for times in sent_ms]),
        "tpot_ms": [(times[-1] - times[0]) / (len(times) - 1) for times in sent_ms],
    }
    for metric, values in true.items():
        for percent in (50, 90, 99):
            expected = float(np.percentile(values, percent))
            estimate = result.percentile(metric, percent)
            assert estimate is not None
            assert estimate.value == pytest.approx(expected, rel=0.02, abs=2), (metric, percent)
    arrived_s = np.array([request.arrived_ns for request in truth]) / 1e9
    delivered = (len(arrived_s) - 1) / (arrived_s.max() - arrived_s.min())
    assert delivered == pytest.approx(60, rel=0.05)

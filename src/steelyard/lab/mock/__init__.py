"""A server that speaks OpenAI's API and knows the truth: what happened, when, to the microsecond.

`MockServer` answers requests at times that follow from a `MockConfig` and a seed, through a queue
with real capacity, with faults where they are asked for, and writes down what it really did
(`truth`). It computes nothing: for a real model there is `steelyard serve`. `proxy` plants faults
into another server's answers.
"""

from steelyard.lab.mock.bottlenecks import BOTTLENECKS
from steelyard.lab.mock.config import MockConfig
from steelyard.lab.mock.config_file import load_config, make_config
from steelyard.lab.mock.server import MockServer
from steelyard.lab.mock.truth import RequestTruth, RunTruth, read_truth

__all__ = [
    "BOTTLENECKS",
    "MockConfig",
    "MockServer",
    "RequestTruth",
    "RunTruth",
    "load_config",
    "make_config",
    "read_truth",
]

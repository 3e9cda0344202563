"""The ground floor: the words every other package speaks.

Types, protocols, errors, the clock and the wire codec. No policy, no I/O, no torch.
"""

from steelyard.contract.clock import Clock, RealClock, VirtualClock
from steelyard.contract.engine import Engine, EngineInfo, EngineState, EngineStatus
from steelyard.contract.requests import (
    FinishReason,
    GenerateRequest,
    SamplingParams,
    TokenChunk,
    TokenLogprobs,
    Usage,
)

__all__ = [
    "Clock",
    "Engine",
    "EngineInfo",
    "EngineState",
    "EngineStatus",
    "FinishReason",
    "GenerateRequest",
    "RealClock",
    "SamplingParams",
    "TokenChunk",
    "TokenLogprobs",
    "Usage",
    "VirtualClock",
]

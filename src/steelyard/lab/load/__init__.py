"""What a run asks of a server, and when: data and pure functions, all seeded and repeatable.

`workload` describes, `planning` lays out, `prompts` writes the words. Nothing here sends anything:
`client` does.
"""

from steelyard.lab.load.arrivals import Arrivals, ClosedLoop, OpenLoop, TraceReplay
from steelyard.lab.load.content import (
    AzureTrace,
    Content,
    MooncakeTrace,
    PromptFile,
    Synthetic,
    ThinkTime,
)
from steelyard.lab.load.lengths import (
    ARTICLE_MIX,
    Fixed,
    Lengths,
    Mixture,
    Samples,
    Share,
    Uniform,
    parse_lengths,
)
from steelyard.lab.load.plan import Plan, Sessions, Turn
from steelyard.lab.load.planning import make_plan
from steelyard.lab.load.prompts import PromptMaker, TokenScale, new_nonce, probe_text
from steelyard.lab.load.rates import RateProfile, Segment, burst, parse_profile, steady
from steelyard.lab.load.workload import CacheState, Workload

__all__ = [
    "ARTICLE_MIX",
    "Arrivals",
    "AzureTrace",
    "CacheState",
    "ClosedLoop",
    "Content",
    "Fixed",
    "Lengths",
    "Mixture",
    "MooncakeTrace",
    "OpenLoop",
    "Plan",
    "PromptFile",
    "PromptMaker",
    "RateProfile",
    "Samples",
    "Segment",
    "Sessions",
    "Share",
    "Synthetic",
    "ThinkTime",
    "TokenScale",
    "TraceReplay",
    "Turn",
    "Uniform",
    "Workload",
    "burst",
    "make_plan",
    "new_nonce",
    "parse_lengths",
    "parse_profile",
    "probe_text",
    "steady",
]

"""What is sent: synthetic sessions, the requests of a trace, or prompts from a file.

When it is sent is decided by `arrivals`. `traces` reads the files, `plan` lays the sessions out,
`prompts` writes the texts.
"""

from typing import Annotated

import msgspec

from steelyard.lab.load.lengths import Fixed, Lengths

__all__ = ["AzureTrace", "Content", "MooncakeTrace", "PromptFile", "Synthetic", "ThinkTime"]


class ThinkTime(msgspec.Struct, frozen=True):
    """How long a user reads and writes between two turns."""

    mean_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    cv: Annotated[float, msgspec.Meta(ge=0, le=20)] = 0.0
    """Coefficient of variation: 0 always the mean, 1 exponential."""


class Synthetic(msgspec.Struct, frozen=True, kw_only=True, tag="synthetic"):
    """Random words, no two sessions alike but for a shared beginning."""

    input: Lengths
    """Tokens of a session's first prompt, shared beginning included; later turns add as many."""
    output: Lengths
    turns: Lengths = Fixed(1)
    """Requests of a session: each holds the whole conversation so far."""
    think: ThinkTime = ThinkTime()
    shared_prefix_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Tokens at the beginning that all sessions of a group have in common."""
    prefix_groups: Annotated[int, msgspec.Meta(ge=1)] = 1
    """How many different shared beginnings there are; each session gets one at random."""


class AzureTrace(msgspec.Struct, frozen=True, tag="azure"):
    """CSV with TIMESTAMP, ContextTokens and GeneratedTokens (Azure LLM inference traces)."""

    path: str


class MooncakeTrace(msgspec.Struct, frozen=True, tag="mooncake"):
    """JSON lines with timestamp (ms), input_length, output_length and hash_ids, one per 512 tokens.

    Equal ids become equal text, so that requests share prefixes as they did in production.
    """

    path: str


class PromptFile(msgspec.Struct, frozen=True, kw_only=True, tag="prompts"):
    """Real prompts: JSON lines with `turns` or `prompt`, plain or gzip; or text, one per line."""

    path: str
    output: Lengths
    think: ThinkTime = ThinkTime()


Content = Synthetic | AzureTrace | MooncakeTrace | PromptFile

"""vLLM as an engine: how its server is started, and how it is spoken to.

`flags` makes command line and environment of a plan (`backends.plans`); `dialect` adds to that of
OpenAI-compatible servers what vLLM tells of itself. It is a program of its own in an environment of
its own, never imported.
"""

from steelyard.backends.vllm.dialect import VllmDialect
from steelyard.backends.vllm.flags import vllm_command, vllm_environment

__all__ = ["VllmDialect", "vllm_command", "vllm_environment"]

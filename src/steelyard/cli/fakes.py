"""The engine of `backend: fake`, which lives in the process of the door."""

from steelyard.backends.fake import FakeEngine, FakeEngineConfig
from steelyard.contract import RealClock
from steelyard.settings import Deployment
from steelyard.text.text_model import TextModel

__all__ = ["make_fake_engine"]


def make_fake_engine(deployment: Deployment, context_tokens: int, text: TextModel) -> FakeEngine:
    """An engine that makes tokens up, with the limits that the deployment's would have."""
    config = FakeEngineConfig(
        model=deployment.served_as,
        context_tokens=context_tokens,
        vocab_size=text.vocab_size,
        end_token_ids=text.end_token_ids,
        max_running=deployment.batching.running_limit,
        max_waiting=deployment.batching.max_waiting,
        block_tokens=deployment.kv_cache.block_tokens,
    )
    return FakeEngine(config, clock=RealClock())

"""`/v1/embeddings`: refused in words, because clients of OpenAI's API look for it.

The models served here generate text. Vectors made from their hidden states would look like
embeddings and be bad ones, so there are none.
"""

from steelyard.contract.errors import UnsupportedFeature
from steelyard.gateway.http import Exchange

__all__ = ["refuse_embeddings"]


async def refuse_embeddings(exchange: Exchange) -> None:
    """Raises `UnsupportedFeature`, always."""
    raise UnsupportedFeature(
        "the models served here generate text and make no embeddings",
        param="model",
        fix="Ask a service that serves an embedding model.",
    )

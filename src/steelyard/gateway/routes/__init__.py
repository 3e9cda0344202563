"""Answers that need no engine work: what is served, how it is, and text to tokens and back."""

from steelyard.gateway.routes.about import About
from steelyard.gateway.routes.embeddings import refuse_embeddings
from steelyard.gateway.routes.tokens import Tokens

__all__ = ["About", "Tokens", "refuse_embeddings"]

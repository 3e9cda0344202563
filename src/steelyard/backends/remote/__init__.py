"""The dialect of OpenAI-compatible servers, whoever runs them.

`dialect` is the whole; `probing` finds out what a server can do, `bodies` and `readers` are what is
said and what is answered. Connections and streams are `backends.http`'s business.
"""

from steelyard.backends.remote.config import RemoteConfig, TextCodec
from steelyard.backends.remote.dialect import RemoteDialect

__all__ = ["RemoteConfig", "RemoteDialect", "TextCodec"]

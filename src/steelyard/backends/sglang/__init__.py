"""SGLang as an engine: how its server is started, and its native API, `/generate`.

`flags` makes the command line of a plan (`backends.plans`), `dialect` and `readers` speak to the
server. It is a program of its own in an environment of its own, never imported.
"""

from steelyard.backends.sglang.dialect import SglangDialect
from steelyard.backends.sglang.flags import sglang_command

__all__ = ["SglangDialect", "sglang_command"]

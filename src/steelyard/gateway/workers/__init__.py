"""One door in several processes: what the process that keeps the workers and each of them say.

`channel` carries `messages` both ways over a Unix socket. Starting, replacing and stopping workers
is `cli.worker_doors`' business; what a worker is made of, `cli.worker`'s.
"""

from steelyard.gateway.workers.channel import Channel
from steelyard.gateway.workers.page import MergedPage, RemotePage

__all__ = ["Channel", "MergedPage", "RemotePage"]

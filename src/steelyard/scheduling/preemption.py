"""Who gives way when KV memory runs out.

The victim is the running sequence that loses the fewest computed tokens per block it frees; it
will compute them again. Blocks that others share, or that stay cached, are no loss. Two rules stand
above that:

    the first in order (priority, arrival) is never a victim    so it finishes, whatever happens:
                                                                nobody preempts in circles
    nobody gives way to a less important one                    priorities hold under pressure

`scheduler` does the preempting; `kv_manager` says what it would bring.
"""

import math
from collections.abc import Iterable

from steelyard.scheduling.kv_manager import KVManager
from steelyard.scheduling.sequence import Sequence

__all__ = ["choose_victim"]


def choose_victim(
    kv: KVManager, running: Iterable[Sequence], needy: Sequence, end: int
) -> Sequence:
    """Whom to preempt so that `needy` can compute its tokens up to `end`; it may be `needy`.

    `running` is in order of (priority, arrival). Looks at every block in use: preemptions are rare
    and cost far more than that.
    """
    shortage = kv.shortage(needy, end)
    candidates = iter(running)
    first = next(candidates)
    victim: Sequence | None = None
    least = (math.inf, 0)
    for candidate in candidates:
        if candidate.priority < needy.priority or not candidate.is_running:
            continue
        freed, lost = kv.preemption_yield(candidate, shortage)
        # Among equals the youngest. Sharers free nothing alone, but may once the others are gone.
        rank = (lost / freed if freed else math.inf, -candidate.arrival_order)
        if victim is None or rank < least:
            victim, least = candidate, rank
    assert victim is not None, f"{first} does not fit alone"
    return victim

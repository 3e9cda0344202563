"""What was seen when the findings on peers were looked at by hand, one by one.

A finding that stands here is a true one, with the reason; one that does not is marked as not yet
looked at in the results.
"""

__all__ = ["JUDGEMENTS"]

JUDGEMENTS: dict[tuple[str, str], str] = {}
"""Family and check → the judgement."""

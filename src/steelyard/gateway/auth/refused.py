"""Why credentials are refused: in words for the client, as a reason for the metrics.

A client learns what it can change (send a token, get a fresh one), never how close a forged one
came. Neither the texts nor the reasons hold any part of what was sent.
"""

from typing import Literal

__all__ = ["CredentialsRefused", "RefusalReason"]

RefusalReason = Literal[
    "claims",
    "expired",
    "grant",
    "issuer",
    "key",
    "lifetime",
    "malformed",
    "missing",
    "not_yet_valid",
    "revoked",
    "signature",
    "type",
]
"""`key`: signed with a key, or an algorithm, that is not accepted. `claims`: a claim is missing or
of the wrong kind. `grant`: valid, but not for this route."""


class CredentialsRefused(Exception):
    """Raised by authenticators, answered by `gateway.auth.guard`."""

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(_TEXTS.get(reason, "The credentials are not valid."))
        self.reason: RefusalReason = reason

    @property
    def text(self) -> str:
        """For the client."""
        return str(self)


_TEXTS: dict[RefusalReason, str] = {
    "expired": "The credentials have expired.",
    "lifetime": "The token is valid for longer than this service accepts.",
    "missing": "Credentials are required: send Authorization: Bearer and a key or token.",
    "not_yet_valid": "The token is not valid yet.",
    "revoked": "The credentials have been revoked.",
}

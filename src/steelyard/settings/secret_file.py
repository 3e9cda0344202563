"""Reads a secret from the file that a setting names, so that no secret stands in the settings.

Knows nothing of what the secret is for.
"""

from steelyard.contract.errors import SettingsError
from steelyard.settings.paths import expanded

__all__ = ["MIN_SECRET_BYTES", "read_secret"]

MIN_SECRET_BYTES = 16
_MAX_SECRET_BYTES = 4096


def read_secret(file: str, *, key: str, min_bytes: int = MIN_SECRET_BYTES) -> bytes:
    """The file's bytes without surrounding white space.

    Raises `SettingsError` for `key` when there is no such file, or it holds fewer than
    `min_bytes` or more than 4096 bytes. The message never shows the content.
    """
    try:
        with expanded(file).open("rb") as stream:
            secret = stream.read(_MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SettingsError(
            f"the file cannot be read ({error.strerror or error})",
            param=key,
            fix="name a readable file, or null",
        ) from error
    if len(secret) > _MAX_SECRET_BYTES:
        raise SettingsError(
            f"the file is larger than {_MAX_SECRET_BYTES} bytes, so it is no secret",
            param=key,
            fix="name the file that holds the secret alone",
        )
    secret = secret.strip()
    if len(secret) < min_bytes:
        raise SettingsError(
            f"the file holds {len(secret)} bytes, which can be guessed",
            param=key,
            fix=f"store at least {min_bytes} random bytes: openssl rand -base64 32",
        )
    return secret

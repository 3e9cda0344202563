"""Files of API keys for tests, and the keys in them."""

from pathlib import Path
from typing import Any

from steelyard.gateway.auth.api_keys import KeyEntry, entry_line, hash_key, new_key
from steelyard.gateway.auth.config import AuthConfig
from steelyard.gateway.config import GatewayConfig

__all__ = ["Keyring", "bearer"]


def bearer(credentials: str) -> str:
    """The header field that carries credentials."""
    return f"authorization: Bearer {credentials}"


class Keyring:
    """A keys file, and what it takes to be let in by it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.jsonl"
        self.path.write_text("")
        self.infer = self.add("team-a")
        self.admin = self.add("ops", scopes=("llm:admin",))
        self.nothing = self.add("team-b", scopes=())

    def add(self, tenant: str, key: str | None = None, **fields: Any) -> str:
        """A new key, or `key`."""
        key = key or new_key()
        key_id, digest = hash_key(key)
        entry = KeyEntry(id=key_id, sha256=digest, tenant=tenant, **fields)
        with self.path.open("a") as file:
            file.write(entry_line(entry))
        return key

    def gateway(self, **changes: Any) -> GatewayConfig:
        """A door that lets holders of these keys in."""
        return GatewayConfig(port=0, auth=self.auth(), **changes)

    def auth(self, **changes: Any) -> AuthConfig:
        return AuthConfig(mode="api_keys", keys_file=self.path, files_poll_s=0.02, **changes)

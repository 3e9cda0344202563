"""Enough of the Hugging Face hub for its own client library to fetch a model from it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.checkpoints.faulty_server import FaultyServer, faulty_server

COMMIT = "1234567890abcdef1234567890abcdef12345678"


@contextmanager
def fake_hub(repository: str, files: dict[str, bytes]) -> Iterator[FaultyServer]:
    """Serve one repository; weights are published with their SHA-256, as LFS files are."""
    with faulty_server() as server:
        publish(server, repository, files)
        yield server


def publish(server: FaultyServer, repository: str, files: dict[str, bytes]) -> None:
    """Replace what the server offers."""
    siblings = [_sibling(name, body) for name, body in files.items()]
    info = json.dumps({"id": repository, "sha": COMMIT, "siblings": siblings}).encode()
    for path in (f"/api/models/{repository}", f"/api/models/{repository}/revision/main"):
        server.files[path] = info
        server.content_types[path] = "application/json"
    for name, body in files.items():
        path = f"/{repository}/resolve/{COMMIT}/{name}"
        server.files[path] = body
        server.headers[path] = {"X-Repo-Commit": COMMIT}


def _sibling(name: str, body: bytes) -> dict[str, Any]:
    sibling: dict[str, Any] = {"rfilename": name, "size": len(body), "blobId": "0" * 40}
    if name.endswith((".safetensors", ".gguf", ".bin")):
        sha256 = hashlib.sha256(body).hexdigest()
        sibling["lfs"] = {"size": len(body), "sha256": sha256, "pointerSize": 130}
    return sibling

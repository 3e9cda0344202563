"""The listener for administration of a running service: what is there, and for whom."""

import http.client
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from steelyard.gateway.auth.api_keys import KeyEntry, hash_key, new_key
from steelyard.gateway.auth.keys_file import add_key
from steelyard.settings import examine

from .stage import Command, Stage, ask
from .test_serving import free_port


def serve(stage: Stage, gateway: dict[str, Any]) -> Command:
    file = stage.folder / "deployment.yaml"
    file.write_text(yaml.safe_dump({"backend": "fake", "gateway": gateway}))
    return stage.serve("--config", str(file))


def test_metrics_and_administration_have_a_port_of_their_own(stage: Stage) -> None:
    port, keys = free_port(), stage.folder / "keys.jsonl"
    credentials = {}
    for tenant, scope in (("team-a", "llm:infer"), ("ops", "llm:admin")):
        credentials[tenant] = new_key()
        key_id, digest = hash_key(credentials[tenant])
        entry = KeyEntry(id=key_id, sha256=digest, tenant=tenant, scopes=(scope,))
        add_key(keys, entry)
    auth = {"mode": "api_keys", "keys_file": str(keys)}
    service = serve(stage, {"auth": auth, "admin": {"port": port}})
    ops = credentials["ops"]
    assert service.ask("/metrics", None, ops)[0] == 404
    assert service.ask("/admin/status", None, ops)[0] == 404
    status, text = ask(port, "/metrics")
    assert status == 200 and "steelyard_build_info" in text
    assert ask(port, "/readiness")[0] == 200
    assert ask(port, "/admin/status")[0] == 401
    assert ask(port, "/admin/status", None, credentials["team-a"])[0] == 403
    status, answer = ask(port, "/admin/status", None, ops)
    assert status == 200
    assert (answer["model"], answer["workers"], answer["in_flight"]) == ("tiny", 1, 0)
    assert ask(port, "/admin/reload", {}, ops)[1]["outcome"] == "unchanged"
    assert ask(port, "/admin/reload", None, ops)[0] == 405
    assert ask(port, "/v1/models", None, ops)[0] == 404
    assert service.stop() == 0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket file."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def unix_ask(path: Path, method: str, target: str, **headers: str) -> tuple[int, str]:
    connection = UnixConnection(path)
    connection.request(method, target, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_a_socket_file_is_for_this_user_alone_and_asks_for_nothing(stage: Stage) -> None:
    path = stage.folder / "admin.sock"
    service = serve(stage, {"admin": {"socket": str(path)}})
    assert service.port
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert unix_ask(path, "GET", "/admin/status")[0] == 200
    assert "steelyard_build_info" in unix_ask(path, "GET", "/metrics")[1]
    assert unix_ask(path, "POST", "/admin/reload", origin="https://evil.test")[0] == 403
    assert service.ask("/metrics")[0] == 404
    assert service.stop() == 0
    assert not path.exists()


@pytest.mark.parametrize("what", ["port", pytest.param("socket", marks=pytest.mark.slow)])
def test_an_address_that_is_taken_ends_the_start(stage: Stage, what: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        regular = stage.folder / "file"
        regular.write_text("")
        value = taken.getsockname()[1] if what == "port" else str(regular)
        service = serve(stage, {"admin": {what: value}})
        assert service.wait() == 1
    assert f"gateway.admin.{what}" in service.stderr
    assert regular.exists()


def test_an_open_listener_for_administration_is_refused() -> None:
    sets = ["gateway.admin.port=1", "gateway.admin.host=0.0.0.0"]
    problems = examine(sets=sets, environ={"HOME": "/"}).problems
    assert [problem.path for problem in problems] == ["gateway.admin.host"]
    for fix in ("gateway.insecure=true", "gateway.admin.host=127.0.0.1"):
        assert not examine(sets=[*sets, fix], environ={"HOME": "/"}).problems

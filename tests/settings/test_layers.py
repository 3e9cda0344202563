"""Defaults < file < environment < --set < flags, and every value knows where it came from."""

from pathlib import Path

import pytest

from steelyard.settings import Flag, SourceKind, examine, resolve

_FILE = "gateway:\n  port: 9001\n"


def test_without_any_layer_everything_is_a_default() -> None:
    resolved = resolve(environ={})
    assert {row.source.kind for row in resolved.as_rows()} == {SourceKind.DEFAULT}
    assert resolved.deployment.model == "smollm2-135m"
    assert str(resolved.provenance("gateway.port")) == "default"


def test_each_layer_wins_over_those_below(tmp_path: Path) -> None:
    file = tmp_path / "deploy.yaml"
    file.write_text(_FILE)
    environ = {"STEELYARD_GATEWAY__PORT": "9002"}
    sets = ["gateway.port=9003"]
    flags = [Flag("gateway.port", 9004, "--port")]

    def port(**layers: object) -> tuple[int, str]:
        resolved = resolve(**({"environ": {}} | layers))  # type: ignore[arg-type]
        return resolved.deployment.gateway.port, str(resolved.provenance("gateway.port"))

    assert port() == (8000, "default")
    assert port(file=file) == (9001, f"{file}:2")
    assert port(file=file, environ=environ) == (9002, "STEELYARD_GATEWAY__PORT")
    assert port(file=file, environ=environ, sets=sets) == (9003, "--set gateway.port")
    assert port(file=file, environ=environ, sets=sets, flags=flags) == (9004, "--port")


def test_layers_meet_key_by_key_not_section_by_section(tmp_path: Path) -> None:
    file = tmp_path / "deploy.yaml"
    file.write_text("gateway:\n  port: 9001\n  limits: {max_n: 4}\n")
    resolved = resolve(file=file, sets=["gateway.limits.max_stop=3"], environ={})
    gateway = resolved.deployment.gateway
    assert (gateway.port, gateway.limits.max_n, gateway.limits.max_stop) == (9001, 4, 3)
    assert str(resolved.provenance("gateway.limits.max_n")) == f"{file}:3"


def test_the_environment_names_the_file_and_a_flag_names_another(tmp_path: Path) -> None:
    named, given = tmp_path / "named.yaml", tmp_path / "given.yaml"
    named.write_text("gateway: {port: 9001}")
    given.write_text("gateway: {port: 9002}")
    environ = {"STEELYARD_CONFIG": str(named)}
    assert resolve(environ=environ).deployment.gateway.port == 9001
    assert resolve(environ=environ, file=given).deployment.gateway.port == 9002


def test_of_equal_sets_the_last_one_counts() -> None:
    resolved = resolve(sets=["model=a", "model=b"], environ={})
    assert resolved.deployment.model == "b"


def test_a_flag_that_was_not_given_says_nothing() -> None:
    resolved = resolve(flags=[Flag("gateway.port", None, "--port")], environ={})
    assert str(resolved.provenance("gateway.port")) == "default"


def test_an_empty_variable_counts_as_not_set() -> None:
    assert resolve(environ={"STEELYARD_GATEWAY__PORT": ""}).deployment.gateway.port == 8000


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("gateway.port=9000", "gateway.port", 9000),
        ("engine.threads=auto", "engine.threads", "auto"),
        ("engine.threads=2", "engine.threads", 2),
        ("model=123", "model", "123"),
        ("served_name=true", "served_name", "true"),
        ("served_name=null", "served_name", None),
        ("batching.step_stretch=null", "batching.step_stretch", None),
        ("batching.step_stretch=3", "batching.step_stretch", 3.0),
        ("batching.memory_threshold=.5", "batching.memory_threshold", 0.5),
        ("kv_cache.prefix_cache=no", "kv_cache.prefix_cache", False),
        ("kv_cache.prefix_cache=TRUE", "kv_cache.prefix_cache", True),
        ("kv_cache.memory=512MiB", "kv_cache.memory", 512 * 1024**2),
        ("kv_cache.memory=2097152", "kv_cache.memory", 2097152),
        ("kv_cache.memory=auto", "kv_cache.memory", "auto"),
        ("kv_cache.block_tokens=32", "kv_cache.block_tokens", 32),
        ("gateway.cors.origins=", "gateway.cors.origins", ()),
        ("gateway.cors.origins=https://a", "gateway.cors.origins", ("https://a",)),
        ('gateway.cors.origins=["http://a:1"]', "gateway.cors.origins", ("http://a:1",)),
        ("gateway.cors.origins=https://a, *", "gateway.cors.origins", ("https://a", "*")),
        ("model=a=b", "model", "a=b"),
    ],
)
def test_a_text_takes_the_type_of_its_key(text: str, path: str, value: object) -> None:
    resolved = resolve(sets=[text], environ={})
    (row,) = [row for row in resolved.as_rows() if row.key.name == path]
    assert row.value == value
    assert type(row.value) is type(value)


def test_what_kubernetes_sets_for_a_service_of_our_name_is_no_setting() -> None:
    links = {
        "STEELYARD_SERVICE_HOST": "10.0.0.1",
        "STEELYARD_SERVICE_PORT": "8000",
        "STEELYARD_SERVICE_PORT_HTTP": "8000",
        "STEELYARD_PORT": "tcp://10.0.0.1:8000",
        "STEELYARD_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "STEELYARD_PORT_8000_TCP_ADDR": "10.0.0.1",
        "STEELYARD_PORT_8000_TCP_PORT": "8000",
        "STEELYARD_PORT_8000_TCP_PROTO": "tcp",
        "STEELYARD_GATEWAY_PORT": "tcp://10.0.0.2:80",
        "STEELYARD_GATEWAY_SERVICE_HOST": "10.0.0.2",
        "STEELYARD_GATEWAY_PORT_80_UDP_ADDR": "10.0.0.2",
    }
    resolved = resolve(environ=links | {"STEELYARD_GATEWAY__PORT": "9000"})
    assert resolved.deployment.gateway.port == 9000


def test_the_cache_folder_follows_the_desktop_specification(tmp_path: Path) -> None:
    assert resolve(environ={"XDG_CACHE_HOME": str(tmp_path)}).cache_dir == tmp_path / "steelyard"
    home = Path.home() / ".cache" / "steelyard"
    assert resolve(environ={}).cache_dir == home
    assert resolve(environ={"XDG_CACHE_HOME": "relative"}).cache_dir == home


def test_a_cache_folder_in_the_settings_wins_and_knows_the_home_folder() -> None:
    resolved = resolve(sets=["cache_dir=~/models"], environ={"XDG_CACHE_HOME": "/elsewhere"})
    assert resolved.cache_dir == Path.home() / "models"


def test_a_user_without_a_home_is_told_to_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    (problem,) = examine(environ={}).problems
    assert problem.path == "cache_dir"
    assert "STEELYARD_CACHE_DIR" in problem.fix
    assert resolve(sets=["cache_dir=/cache"], environ={}).cache_dir == Path("/cache")
    assert resolve(environ={"XDG_CACHE_HOME": "/cache"}).cache_dir == Path("/cache/steelyard")


def test_the_home_of_an_unknown_user_stays_as_it_is_written() -> None:
    resolved = resolve(sets=["cache_dir=~nobody-of-this-name/x"], environ={})
    assert resolved.cache_dir == Path("~nobody-of-this-name/x")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("smollm2-135m", "smollm2-135m"),
        ("org/name", "org/name"),
        ("/models/my-model", "my-model"),
        ("./models/tiny.gguf", "tiny"),
        ("tiny.gguf", "tiny"),
    ],
)
def test_the_served_name_comes_from_the_model(model: str, name: str) -> None:
    assert resolve(sets=[f"model={model}"], environ={}).deployment.served_as == name


def test_the_served_name_can_be_chosen() -> None:
    assert resolve(sets=["served_name=gpt"], environ={}).deployment.served_as == "gpt"


def test_auto_for_running_sequences_never_exceeds_the_tokens_of_a_step() -> None:
    def running_limit(*sets: str) -> int:
        return resolve(sets=sets, environ={}).deployment.batching.running_limit

    assert running_limit() == 64
    assert running_limit("batching.max_step_tokens=16") == 16
    assert running_limit("batching.max_running=100") == 100

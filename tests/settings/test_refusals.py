"""What cannot work is refused with key path, reason and fix; all problems at once; no secrets."""

import pytest

from steelyard.contract.errors import SettingsError
from steelyard.settings import Flag, resolve
from steelyard.settings.keys import keys

from .conftest import Examiner


def test_a_contradiction_reads_as_path_reason_place_and_fix(examined: Examiner) -> None:
    problem = examined.problem(
        "batching: {min_batch: 64, max_wait_ms: 5}", sets=["batching.max_running=32"]
    )
    assert str(problem) == (
        "batching.min_batch: 64 exceeds batching.max_running = 32 "
        f"({problem.where}). Fix: lower batching.min_batch to 32 or raise batching.max_running"
    )
    assert problem.where.endswith("deploy.yaml:1, --set batching.max_running")


@pytest.mark.parametrize(
    ("sets", "path", "says"),
    [
        ("batching.min_batch=65 batching.max_wait_ms=5", "batching.min_batch", "auto, which is 64"),
        (
            "batching.min_batch=8 batching.max_wait_ms=5 batching.max_waiting=4 "
            "gateway.limits.max_n=1",
            "batching.min_batch",
            "batching.max_waiting = 4",
        ),
        ("batching.min_batch=2", "batching.min_batch", "max_wait_ms = 0 disables holding"),
        ("batching.max_running=513", "batching.max_running", "max_step_tokens = 512"),
        (
            "engine.context_tokens=32 kv_cache.block_tokens=64",
            "kv_cache.block_tokens",
            "engine.context_tokens = 32",
        ),
        (
            "gateway.limits.max_tokens=10 gateway.limits.default_max_tokens=11",
            "gateway.limits.default_max_tokens",
            "11 exceeds gateway.limits.max_tokens = 10",
        ),
        ("gateway.limits.max_queue=8", "gateway.limits.max_n", "max_queue = 8"),
        ("batching.max_waiting=8", "gateway.limits.max_n", "batching.max_waiting = 8"),
        ("gateway.limits.max_sequences=8", "gateway.limits.max_n", "max_sequences = 8"),
        (
            "gateway.batches.folder=batches gateway.workers=2",
            "gateway.batches.folder",
            "gateway.workers = 2 processes cannot share it",
        ),
        ("gateway.host=0.0.0.0", "gateway.host", "everyone who reaches the port"),
        ("gateway.host=::", "gateway.host", "everyone who reaches the port"),
        ("gateway.host=example.org", "gateway.host", "everyone who reaches the port"),
        (
            "gateway.auth.mode=api_keys",
            "gateway.auth.keys_file",
            "is not set, but gateway.auth.mode = api_keys needs it",
        ),
        (
            "gateway.auth.mode=jwt gateway.auth.jwt.audience=me "
            "gateway.auth.jwt.jwks_url=https://idp/keys",
            "gateway.auth.jwt.issuer",
            "gateway.auth.mode = jwt needs it",
        ),
        (
            "gateway.auth.mode=jwt gateway.auth.jwt.issuer=idp "
            "gateway.auth.jwt.jwks_url=https://idp/keys",
            "gateway.auth.jwt.audience",
            "gateway.auth.mode = jwt needs it",
        ),
        (
            "gateway.auth.mode=jwt gateway.auth.jwt.issuer=idp gateway.auth.jwt.audience=me",
            "gateway.auth.jwt.jwks_url",
            "gateway.auth.mode = jwt needs it",
        ),
        ("gateway.auth.keys_file=k", "gateway.auth.keys_file", "asks nobody for credentials"),
        ("gateway.auth.jwt.issuer=i", "gateway.auth.jwt.issuer", "asks nobody for credentials"),
        ("gateway.auth.revoked_file=r", "gateway.auth.revoked_file", "asks nobody"),
        ("gateway.metrics=admin", "gateway.metrics", "there is none"),
        (
            "gateway.admin.port=1 gateway.admin.socket=s",
            "gateway.admin.port",
            "together with gateway.admin.socket",
        ),
        (
            "engine.restart.first_delay_s=31",
            "engine.restart.first_delay_s",
            "engine.restart.max_delay_s = 30",
        ),
    ],
)
def test_settings_that_cannot_work_together_are_refused(
    examined: Examiner, sets: str, path: str, says: str
) -> None:
    problem = examined.problem(sets=sets.split())
    assert problem.path == path
    assert says in problem.reason
    assert problem.fix


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "::1"])
def test_loopback_needs_no_consent(examined: Examiner, host: str) -> None:
    assert examined(sets=[f"gateway.host={host}"]).resolved is not None


def test_an_open_door_is_possible_when_it_is_meant(examined: Examiner) -> None:
    sets = ["gateway.host=0.0.0.0", "gateway.insecure=true"]
    assert examined(sets=sets).resolved is not None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gateway.port=65536", "65536"),
        ("gateway.port=-1", "-1"),
        ("gateway.port=80.5", "'80.5'"),
        ("gateway.port=http", "'http'"),
        ("gateway.limits.header_timeout_s=0", "0"),
        ("gateway.limits.idle_timeout_s=-1", "-1"),
        ("gateway.limits.body_timeout_s=nan", "'nan'"),
        ("gateway.limits.write_timeout_s=1e999", "inf"),
        ("gateway.limits.max_connections=0", "0"),
        ("gateway.host=http://localhost", "is a URL"),
        ("gateway.host=localhost:80", "holds a port"),
        ("gateway.host=a b", "is no host"),
        ("gateway.host=", "is no host"),
        ("gateway.cors.origins=example.org", "no origin"),
        ("gateway.cors.origins=https://a/b", "no origin"),
        ("gateway.cors.origins=https://a:99999", "no origin"),
        ("gateway.cors.origins=[1]", "a list"),
        ("kv_cache.block_tokens=24", "24"),
        ("kv_cache.block_tokens=128", "128"),
        ("kv_cache.memory=64KiB", "is less than 1MiB"),
        ("kv_cache.memory=1G", "ambiguous unit G"),
        ("kv_cache.memory=lots", "is not a size"),
        ("kv_cache.memory=-5", "-5"),
        ("batching.memory_threshold=0", "0"),
        ("batching.memory_threshold=1.5", "1.5"),
        ("batching.step_stretch=0.5", "0.5"),
        ("engine.threads=0", "0"),
        ("weights.precision=fp8", "'fp8'"),
        ("telemetry.log.level=trace", "'trace'"),
        ("telemetry.sample_s=0.01", "0.01"),
        ("served_name=two words", "'two words'"),
        ("model=", "''"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_would_do(
    examined: Examiner, text: str, says: str
) -> None:
    problem = examined.problem(sets=[text])
    assert problem.path == text.partition("=")[0]
    assert says in problem.reason
    assert problem.fix
    assert problem.where == f"--set {problem.path}"


def test_true_is_not_a_number_and_a_number_is_not_a_text(examined: Examiner) -> None:
    assert examined.problem("gateway: {port: true}").reason == "true is not valid here"
    problem = examined.problem("model: 7")
    assert problem.fix == "use text, in quotes"


@pytest.mark.parametrize(
    ("file", "path", "fix"),
    [
        ("batching: {max_runing: 3}", "batching.max_runing", "did you mean batching.max_running?"),
        ("gatway: {}", "gatway", "did you mean gateway?"),
        ("port: 3", "port", "did you mean gateway.port or gateway.admin.port?"),
        (
            "tenants: {named: {team-a: {max_token: 3}}}",
            "tenants.named.team-a.max_token",
            "did you mean tenants.named.team-a.max_tokens?",
        ),
        (
            "tenants: {named: {team-a: {colour: 3}}}",
            "tenants.named.team-a.colour",
            "remove it; the keys of tenants.named.team-a are requests_per_minute, ",
        ),
        ("tenants: {named: {team-a: 3}}", "tenants.named.team-a", "set its keys, such as "),
        ("engine: {max-waiting: 3}", "engine.max-waiting", "did you mean batching.max_waiting?"),
        ("gateway.port: 3", "gateway.port", "write it as nested sections: gateway: {port: …}"),
        ("weights: {zzz: 3}", "weights.zzz", "remove it; the keys of weights are precision"),
        ("model: {a: 1}", "model", "use text"),
        ("telemetry: 3", "telemetry", "set its keys, such as telemetry.sample_s"),
        ("<<: {model: a}", "<<", "remove it; the keys of the file are model"),
        ("? [a]\n: 1", "?", "remove it; the keys of the file are model"),
    ],
)
def test_an_unknown_key_is_refused_with_what_may_have_been_meant(
    examined: Examiner, file: str, path: str, fix: str
) -> None:
    problem = examined.problem(file)
    assert problem.path == path
    assert problem.fix.startswith(fix)


def test_an_unknown_variable_is_refused_in_its_own_spelling(examined: Examiner) -> None:
    problem = examined.problem(environ={"STEELYARD_GATEWAY_PORT": "9000"})
    assert problem.fix == "did you mean STEELYARD_GATEWAY__PORT?"
    problem = examined.problem(environ={"STEELYARD_GATEWAY": "9000"})
    assert problem.fix == "set its keys, such as STEELYARD_GATEWAY__HOST"


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("slo: {ttft_ms: 2000}", "slo"),
        ("kv_cache: {precision: {history: int8}}", "kv_cache.precision"),
        ("kv_cache: {warmup: {learn: true}}", "kv_cache.warmup"),
        ("kv_cache: {offload: {host_gib: 1}}", "kv_cache.offload"),
    ],
)
def test_what_is_planned_but_not_built_says_so(examined: Examiner, file: str, path: str) -> None:
    problem = examined.problem(file)
    assert problem.path == path
    assert "not available in this version" in problem.reason
    assert problem.fix


def test_every_problem_of_every_layer_is_reported_at_once(examined: Examiner) -> None:
    problems = examined(
        "gateway: {port: 0.5, prot: 1}\nbatching: {min_batch: 2}\n",
        environ={"STEELYARD_ENGINE__THREADS": "many"},
        sets=["nonsense", "backend=vlm"],
        flags=[Flag("gateway.host", "0.0.0.0", "--host")],
    ).problems
    assert [problem.path for problem in problems] == [
        "--set",
        "gateway.prot",
        "backend",
        "engine.threads",
        "gateway.port",
        "batching.min_batch",
        "gateway.host",
    ]


def test_a_wrong_value_hides_neither_the_value_below_nor_its_problems(examined: Examiner) -> None:
    problems = examined("gateway: {port: 70000}", sets=["gateway.port=x"]).problems
    assert [problem.where.rpartition("/")[2] for problem in problems] == [
        "--set gateway.port",
        "deploy.yaml:1",
    ]


def test_a_contradiction_with_a_value_already_refused_is_not_invented(examined: Examiner) -> None:
    problem = examined.problem(
        "batching: {min_batch: 100, max_wait_ms: 5, max_running: lots, max_step_tokens: 512}"
    )
    assert problem.path == "batching.max_running"


def test_resolve_raises_one_error_that_names_everything() -> None:
    with pytest.raises(SettingsError) as one:
        resolve(sets=["gateway.port=x"], environ={})
    assert one.value.param == "gateway.port"
    assert str(one.value) == (
        "gateway.port: 'x' is not valid here (--set gateway.port). "
        "Fix: use a whole number from 0 to 65535"
    )
    with pytest.raises(SettingsError) as two:
        resolve(sets=["gateway.port=x", "backend=vlm"], environ={})
    assert two.value.param is None
    assert "gateway.port" in str(two.value)
    assert "backend" in str(two.value)


_SECRET = "sk-live-0123456789abcdef"


@pytest.mark.parametrize(
    "file",
    [
        f"gateway: {{api_key: {_SECRET}}}",
        f"gateway: {{port: {_SECRET}}}",
        f"backend: Bearer {_SECRET}",
        f"gateway: {{host: 'https://user:{_SECRET}@example.org'}}",
        f"gateway: {{cors: {{origins: ['https://user:{_SECRET}@a']}}}}",
        f"model: {{password: {_SECRET}}}",
        f"kv_cache: {{salt_secret_file: [{_SECRET}]}}",
        f"gateway: [{_SECRET}",
        f"telemetry: {_SECRET}",
        f"served_name: !{_SECRET} x",
    ],
)
def test_no_message_shows_a_secret(examined: Examiner, file: str) -> None:
    for problem in examined(file).problems:
        assert _SECRET not in str(problem)
    variables = {"STEELYARD_API_KEY": _SECRET, "STEELYARD_GATEWAY__PORT": f"hf_{_SECRET}"}
    problems = examined(environ=variables, sets=[_SECRET, f"token={_SECRET}"]).problems
    assert len(problems) == 4
    for problem in problems:
        assert _SECRET not in str(problem)


def test_messages_are_short_and_printable_whatever_the_key(examined: Examiner) -> None:
    problem = examined.problem('"\\u001b[31m' + "x" * 5000 + '": 1')
    assert len(problem.path) <= 200
    assert problem.path.isprintable()
    problem = examined.problem(sets=["gateway.port=" + "9" * 5000])
    assert len(problem.reason) < 100


def test_every_key_has_a_description_and_a_type_in_words() -> None:
    for key in keys().values():
        assert key.description.endswith(".")
        assert key.expects


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("keys", "is no URL"),
        ("https://", "is no URL"),
        ("https://[::1", "is no URL"),
        ("file:///etc/keys", "is no URL"),
        ("https://user:pass@host/keys", "holds credentials"),
        ("http://idp.example.com/keys", "is not encrypted"),
        ("http://127.0.0.1.example.com/keys", "is not encrypted"),
    ],
)
def test_keys_of_a_provider_come_encrypted_from_one_place(
    examined: Examiner, url: str, says: str
) -> None:
    problem = examined.problem(sets=[f"gateway.auth.jwt.jwks_url={url}"])
    assert says in problem.reason
    assert "user" not in str(problem)


@pytest.mark.parametrize("url", ["https://idp/keys", "http://127.0.0.1:9/k", "http://[::1]/k"])
def test_keys_may_come_from_this_machine_in_the_clear(examined: Examiner, url: str) -> None:
    assert examined(sets=[f"gateway.auth.jwt.jwks_url={url}"]).resolved is not None


def test_a_shared_secret_is_no_way_to_sign_tokens(examined: Examiner) -> None:
    problem = examined.problem("gateway: {auth: {jwt: {algorithms: [RS256, HS256]}}}")
    assert problem.path == "gateway.auth.jwt.algorithms"


def test_a_password_does_not_stand_in_the_address_of_redis(examined: Examiner) -> None:
    problem = examined.problem(sets=["tenants.redis.url=redis://:hunter2@host"])
    assert problem.reason == "the value holds a password"
    assert "hunter2" not in str(problem)


def test_a_tenant_needs_a_name_that_can_be_written_anywhere(examined: Examiner) -> None:
    for name in ("a b", "-a", "ü", "a" * 129):
        problem = examined.problem(f"tenants: {{named: {{'{name}': {{max_tokens: 1}}}}}}")
        assert problem.reason == "has a name that cannot be used"


def test_the_limits_of_a_tenant_stand_over_the_default(examined: Examiner) -> None:
    resolved = examined(
        """
        tenants:
          default: {requests_per_minute: 60, max_tokens: 100, priority: low}
          named: {team-a: {requests_per_minute: 600, max_tokens: null}}
        """
    ).resolved
    assert resolved is not None
    tenants = resolved.deployment.tenants
    limits = tenants.named["team-a"].over(tenants.default)
    assert (limits.requests_per_minute, limits.max_tokens, limits.priority) == (600, None, "low")
    assert str(resolved.provenance("tenants.named.team-a.max_tokens")).endswith("deploy.yaml:4")

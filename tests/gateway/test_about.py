"""Health, readiness, metrics, version, models, and who may call from a browser."""

from steelyard import __version__
from steelyard.backends.fake import Fault, FaultKind
from steelyard.gateway.config import GatewayConfig

from .conftest import OpenDoor
from .doors import Door
from .wire import get, post

ASK = {"model": "fake", "prompt": "x", "max_tokens": 3}


def test_health_is_about_the_door_and_readiness_about_the_engine(door: Door) -> None:
    assert get(door, "/readiness").status == 200
    door.run(door.engine.close())
    assert get(door, "/health").status == 200
    reply = get(door, "/readiness")
    assert (reply.status, reply.error["code"]) == (503, "not_ready")
    assert "lost" in reply.error["message"]


def test_a_draining_engine_is_not_ready(door: Door) -> None:
    door.run(door.engine.drain())
    assert "draining" in get(door, "/readiness").error["message"]


def test_without_an_engine_requests_get_503_and_retry_after(door: Door) -> None:
    door.run(door.engine.close())
    reply = post(door, "/v1/completions", ASK)
    assert (reply.status, reply.error["code"]) == (503, "engine_lost")
    assert reply.headers["retry-after"] == "1"
    assert get(door, "/v1/models").json["data"][0]["max_model_len"] is None


def test_models_report_their_context(door: Door) -> None:
    card = get(door, "/v1/models/fake").json
    assert (card["id"], card["object"], card["max_model_len"]) == ("fake", "model", 4096)
    assert get(door, "/v1/models/other").status == 404
    assert get(door, "/v1/models/or/g%2Fname").error["param"] == "model"


def test_version_and_root_name_the_service(door: Door) -> None:
    assert get(door, "/version").json == {"version": __version__}
    assert get(door, "/").json["service"] == "steelyard"


def test_metrics_count_what_happened(door: Door) -> None:
    post(door, "/v1/completions", ASK)
    post(door, "/v1/completions", ASK | {"temperature": 9})
    door.engine.inject(Fault(FaultKind.FAIL))
    post(door, "/v1/completions", ASK)
    text = get(door, "/metrics")
    assert text.headers["content-type"].startswith("text/plain")
    ended = "steelyard_requests_ended_total"
    for line in (
        ended + '{model="fake",outcome="finished",reason="length"} 1.0',
        ended + '{model="unknown",outcome="rejected",reason="invalid_value"} 1.0',
        ended + '{model="fake",outcome="failed",reason="engine_failed"} 1.0',
        'steelyard_http_responses_total{route="/v1/completions",status="200"} 1.0',
        'steelyard_http_responses_total{route="/v1/completions",status="400"} 1.0',
        'steelyard_output_tokens_total{model="fake"} 3.0',
        'steelyard_engine_produced_tokens_total{replica="0"} 3.0',
        'steelyard_time_to_first_token_seconds_count{model="fake"} 1.0',
    ):
        assert line in text.body.decode().splitlines(), line


def test_clients_cannot_invent_metric_series(door: Door) -> None:
    for number in range(5):
        post(door, "/v1/completions", ASK | {"model": f"made-up-{number}"})
        get(door, f"/made-up-{number}")
    assert b"made-up" not in get(door, "/metrics").body


def test_a_harmless_request_id_is_kept_and_another_replaced(door: Door) -> None:
    assert get(door, "/health", "x-request-id: a-1_b.C:2").headers["x-request-id"] == "a-1_b.C:2"
    for hostile in ("a b", "x" * 200, 'a"b', "é"):
        given = get(door, "/health", f"x-request-id: {hostile}").headers["x-request-id"]
        assert given.startswith("req-")


def test_browsers_are_kept_out_unless_their_origin_is_listed(make_door: OpenDoor) -> None:
    closed = make_door()
    assert (
        "access-control-allow-origin" not in get(closed, "/health", "origin: https://a.b").headers
    )
    door = make_door(GatewayConfig(port=0, cors_origins=("https://a.b",)))
    allowed = get(door, "/health", "origin: https://a.b").headers
    assert allowed["access-control-allow-origin"] == "https://a.b"
    assert allowed["vary"] == "Origin"
    assert "access-control-allow-origin" not in get(door, "/health", "origin: https://c.d").headers


def test_a_preflight_is_answered_for_listed_origins(make_door: OpenDoor) -> None:
    door = make_door(GatewayConfig(port=0, cors_origins=("*",)))
    asks = ("origin: https://a.b", "access-control-request-method: POST")
    reply = get(door, "/v1/chat/completions", *asks, method="OPTIONS")
    assert reply.status == 204
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "content-type" in reply.headers["access-control-allow-headers"]


def test_tokenize_and_detokenize_are_inverse(door: Door) -> None:
    reply = post(door, "/tokenize", {"model": "fake", "prompt": "hé", "return_token_strs": True})
    assert reply.json["tokens"] == [257, *"hé".encode()]
    assert reply.json["count"] == 4
    assert reply.json["max_model_len"] == 4096
    assert reply.json["token_strs"][1] == "h"
    back = post(door, "/detokenize", {"tokens": reply.json["tokens"]})
    assert back.json == {"prompt": "hé"}
    plain = post(door, "/tokenize", {"prompt": "hé", "add_special_tokens": False})
    assert plain.json["tokens"] == list("hé".encode())


def test_a_conversation_is_tokenised_as_a_chat_would_be(door: Door) -> None:
    messages = [{"role": "user", "content": "hi"}]
    tokens = post(door, "/tokenize", {"messages": messages}).json["tokens"]
    post(door, "/v1/chat/completions", {"model": "fake", "messages": messages, "max_tokens": 1})
    assert tuple(tokens) == door.engine.recent_requests[-1].prompt_ids


def test_the_final_message_can_be_continued(door: Door) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well"}]
    body = {"model": "fake", "messages": messages, "continue_final_message": True}
    assert post(door, "/v1/chat/completions", body | {"max_tokens": 1}).status == 200
    prompt = bytes(i for i in door.engine.recent_requests[-1].prompt_ids if i < 256)
    assert prompt.endswith(b"assistant:Well")


def test_bad_tokens_are_named(door: Door) -> None:
    assert post(door, "/detokenize", {"tokens": [1, 9999]}).error["param"] == "tokens[1]"
    assert post(door, "/tokenize", {}).error["param"] == "prompt"
    assert post(door, "/tokenize", {"prompt": "a", "messages": []}).error["param"] == "prompt"
    assert post(door, "/tokenize", {"promt": "a"}).error["param"] == "promt"


def test_embeddings_are_refused_in_words(door: Door) -> None:
    reply = post(door, "/v1/embeddings", {"model": "fake", "input": "hello"})
    assert (reply.status, reply.error["code"]) == (400, "unsupported_parameter")
    assert "no embeddings" in reply.error["message"]
    assert get(door, "/health").status == 200

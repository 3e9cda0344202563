"""Checks of chat completions: the answer's shape, and that the whole conversation is read."""

import json
from typing import Any

from steelyard.lab.verify.check import check
from steelyard.lab.verify.checks.shapes import claim_shape
from steelyard.lab.verify.endpoints import Endpoint
from steelyard.lab.verify.material import COUNTING, HELLO, long_text
from steelyard.lab.verify.probe import Probe

__all__ = ["CHECKS"]

_CHAT = Endpoint.CHAT


@check(
    "chat.shape",
    "A chat completion has OpenAI's members, with an assistant's message.",
    "Compare the answer with OpenAI's reference of the chat completion object.",
)
async def _shape(probe: Probe) -> None:
    answer = await probe.ask(_CHAT, HELLO)
    claim_shape(probe, answer)
    role = answer.choice.role
    probe.claim(role == "assistant", f"the message's role is {role!r}", answer)
    has_said = answer.choice.content is not None or answer.choice.reasoning
    probe.claim(bool(has_said), "the message has no content", answer)


@check(
    "chat.system-prompt",
    "The system prompt reaches the model.",
    "Does the chat template use the system role? Is the message dropped on the way?",
)
async def _system_prompt(probe: Probe) -> None:
    exchange = await probe.post(_CHAT, _with_system("Be brief."))
    if 400 <= exchange.status < 500:
        probe.skip(f"system prompts are refused with status {exchange.status}")
    short = await probe.ask(_CHAT, _with_system("Be brief."))
    long = await probe.ask(_CHAT, _with_system("Be brief. " + long_text(10)))
    more = long.counts.prompt_tokens - short.counts.prompt_tokens
    probe.claim(
        more >= 100, f"a system prompt longer by 140 words costs {more} tokens more", short, long
    )


@check(
    "chat.turns",
    "Earlier turns of a conversation reach the model.",
    "Are only the last messages kept? Does the template drop assistant turns?",
)
async def _turns(probe: Probe) -> None:
    last = {"role": "user", "content": "What did I ask first?"}
    first = {"role": "user", "content": long_text(6)}
    reply = {"role": "assistant", "content": long_text(6)}
    alone = await probe.ask(_CHAT, [last])
    after_one = await probe.ask(_CHAT, [first, {"role": "assistant", "content": "Yes."}, last])
    after_two = await probe.ask(_CHAT, [first, reply, last])
    user_tokens = after_one.counts.prompt_tokens - alone.counts.prompt_tokens
    reply_tokens = after_two.counts.prompt_tokens - after_one.counts.prompt_tokens
    probe.claim(
        user_tokens >= 60,
        f"a user turn of 84 words costs {user_tokens} tokens",
        alone,
        after_one,
    )
    probe.claim(
        reply_tokens >= 60,
        f"an assistant turn of 84 words costs {reply_tokens} tokens",
        after_one,
        after_two,
    )


@check(
    "chat.content-parts",
    "A message of text parts means the same as plain text.",
    "content may be a list of {type: text, text: …}.",
)
async def _content_parts(probe: Probe) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": COUNTING}]}]
    exchange = await probe.post(_CHAT, parts)
    if 400 <= exchange.status < 500:
        probe.skip(f"text parts are refused with status {exchange.status}")
    plain = await probe.ask(_CHAT, COUNTING, **probe.logprobs(_CHAT))
    from_parts = await probe.ask(_CHAT, parts, **probe.logprobs(_CHAT))
    counts = plain.counts.prompt_tokens, from_parts.counts.prompt_tokens
    probe.claim(counts[0] == counts[1], f"prompts have {counts} tokens", plain, from_parts)
    probe.agree(plain, from_parts, "the answers to text and to parts")


@check(
    "chat.max-completion-tokens",
    "max_completion_tokens limits the answer, as max_tokens does.",
    "OpenAI's newer name of max_tokens.",
)
async def _max_completion_tokens(probe: Probe) -> None:
    answer = await probe.ask(_CHAT, COUNTING, max_tokens=None, max_completion_tokens=5)
    count = answer.counts.completion_tokens
    probe.claim(count <= 5, f"{count} tokens came though 5 were allowed", answer)


@check(
    "chat.empty-message",
    "An empty message is answered, or refused in so many words.",
    "Empty content must not fail inside the template or the engine.",
)
async def _empty_message(probe: Probe) -> None:
    for content in ("", " "):
        exchange = await probe.post(_CHAT, [{"role": "user", "content": content}])
        if not exchange.is_ok:
            probe.refused(exchange, f"a message of {len(content)} blanks")


@check(
    "chat.json-object",
    "response_format json_object makes the answer a JSON object.",
    "Is the grammar applied to every token, the first included?",
)
async def _json_object(probe: Probe) -> None:
    await _structured(probe, {"type": "json_object"}, lambda value: isinstance(value, dict))


@check(
    "chat.json-schema",
    "response_format json_schema makes the answer fit the schema.",
    "Is the grammar applied to every token, the first included?",
)
async def _json_schema(probe: Probe) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"enum": ["yes", "no"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    await _structured(probe, wanted, lambda value: value in ({"answer": "yes"}, {"answer": "no"}))


@check(
    "chat.named-tool",
    "A tool that is named in tool_choice is called, with JSON arguments.",
    "tool_calls[].function.arguments is a text that holds JSON.",
)
async def _named_tool(probe: Probe) -> None:
    function = {
        "name": "set_light",
        "parameters": {
            "type": "object",
            "properties": {"state": {"enum": ["on", "off"]}},
            "required": ["state"],
            "additionalProperties": False,
        },
    }
    answer = await probe.ask(
        _CHAT,
        "Switch the light on.",
        max_tokens=64,
        tools=[{"type": "function", "function": function}],
        tool_choice={"type": "function", "function": {"name": "set_light"}},
    )
    calls = answer.choice.tool_calls
    if not probe.claim(len(calls) == 1, f"{len(calls)} tools were called", answer):
        return
    name, arguments = calls[0]
    probe.claim(name == "set_light", f"the tool {name!r} was called", answer)
    value = _json_value(arguments)
    is_valid = value in ({"state": "on"}, {"state": "off"})
    probe.claim(is_valid, f"the arguments do not fit the schema: {arguments[:80]!r}", answer)


async def _structured(probe: Probe, wanted: dict[str, Any], fits: Any) -> None:
    subject = "Is the sky blue? Reply in JSON with the key answer."
    answer = await probe.ask(_CHAT, subject, max_tokens=128, response_format=wanted)
    value = _json_value(answer.choice.content or "")
    if answer.finish_reason == "length" and value is None:
        probe.skip("the answer was not finished within 128 tokens")
    probe.claim(fits(value), f"the answer does not fit: {answer.text[:80]!r}", answer)


def _json_value(text: str) -> Any:
    """None when `text` is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _with_system(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": text}, {"role": "user", "content": HELLO}]


CHECKS = (
    _shape,
    _system_prompt,
    _turns,
    _content_parts,
    _max_completion_tokens,
    _empty_message,
    _json_object,
    _json_schema,
    _named_tool,
)

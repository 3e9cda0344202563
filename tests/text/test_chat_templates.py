"""Chat templates render as their authors meant: in the dialect of Hugging Face's transformers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

from steelyard.checkpoints import SpecialTokens
from steelyard.contract.errors import InvalidRequest
from steelyard.text import ChatTemplate

TOKENS = SpecialTokens(bos="<s>", eos="</s>")
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  Grüße <b>&</b> 😀 "},
    {"role": "assistant", "content": "Hi", "tool_calls": [{"name": "f", "args": {"x": [1, None]}}]},
    {"role": "user", "content": "bye"},
]
TOOLS = [{"type": "function", "function": {"name": "größe", "parameters": {"a": "<int>"}}}]

IN_THE_STYLE_OF: dict[str, str] = {
    "roles and headers": (
        "{{- bos_token }}\n{%- for message in messages %}\n"
        "    {%- set content = '<|h|>' + message['role'] + '<|/h|>\\n\\n' "
        "+ message['content'] | trim + '<|eot|>' %}\n    {{- content }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|h|>assistant<|/h|>\\n\\n' }}\n{%- endif %}\n"
    ),
    "tools as JSON": (
        "{%- if tools %}\n{%- for tool in tools %}\n{{- tool | tojson }}\n"
        "{{ tool|tojson(indent=2) }}\n{%- endfor %}\n{%- endif %}"
        "{{ messages[2].tool_calls[0].args | tojson }}"
        "{{ {'b': 1, 'a': 'é'}|tojson(sort_keys=true, ensure_ascii=true, separators=(',', ':')) }}"
    ),
    "a namespace that looks back": (
        "{%- set ns = namespace(last=-1, found=false) %}\n{%- for m in messages[::-1] %}\n"
        "{%- set index = (messages|length - 1) - loop.index0 %}\n"
        "{%- if not ns.found and m.role == 'user' and m.content is string %}\n"
        "{%- set ns.found = true %}{%- set ns.last = index %}\n{%- endif %}\n{%- endfor %}"
        "{{ ns.last }}"
    ),
    "alternating turns": (
        "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}"
        "{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}"
        "{%- for m in rest %}{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{- raise_exception('turns must alternate') }}{%- endif %}"
        "{%- if m['role'] == 'user' %}{{- '[INST] ' }}{%- if loop.last and system is defined %}"
        "{{- system ~ '\\n\\n' }}{%- endif %}{{- m['content'] ~ ' [/INST]' }}"
        "{%- elif m['role'] == 'assistant' %}{{- ' ' ~ m['content'] ~ eos_token }}{%- endif %}"
        "{%- endfor %}"
    ),
    "macros and filters": (
        "{%- macro show(items, sep=', ') -%}{{ items | map(attribute='role') | join(sep) }}"
        "{%- endmacro -%}\n{{ show(messages) }}|{{ show(messages, sep='/')|upper }}"
        "|{{ messages|selectattr('role', 'equalto', 'user')|list|length }}"
        "|{{ messages|rejectattr('role', 'in', ['user'])|map(attribute='role')|unique|sort }}"
        "|{{ messages[0]|items|list|length }}|{{ 'a b c'.split(' ')|last }}|{{ 7 // 2 ** 1 }}"
    ),
    "breaks, continues and blocks": (
        "{% for m in messages %}\n  {% if loop.first %}\n    {% continue %}\n  {% endif %}\n"
        "  {{ m.role }}\n  {% if m.role == 'assistant' %}\n    {% break %}\n  {% endif %}\n"
        "{% endfor %}\n{% generation %}kept{% endgeneration %}"
    ),
    "thinking cut away": (
        "{%- for m in messages %}{%- set c = m.content %}"
        "{%- if '</think>' in c %}{%- set c = c.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
        "{{- c.strip().replace('  ', ' ').startswith('B') }}{{- '%s:%d' % (m.role, loop.index) }}"
        "{{- '{}-{}'.format(m.role, 1) }}{%- endfor %}"
    ),
    "things that are not there": (
        "{{ nothing }}|{{ messages[0].nothing }}|{{ nothing is defined }}|{{ tools is none }}"
        "|{{ documents is none }}|{{ pad_token }}|{{ messages[0].get('x', 'y') }}|{{ none }}"
        "|{{ 1 == 1.0 }}|{{ [1, 'a', {'k': (1, 2)}] }}|{{ cycler('a', 'b').next() }}"
    ),
}


def _template(source: str, **options: Any) -> ChatTemplate:
    return ChatTemplate(source, "t.jinja", TOKENS, **options)


EXPECTED = {
    "roles and headers": (
        "<s><|h|>system<|/h|>\n\nBe brief.<|eot|>"
        "<|h|>user<|/h|>\n\nGrüße <b>&</b> 😀<|eot|>"
        "<|h|>assistant<|/h|>\n\nHi<|eot|><|h|>user<|/h|>\n\nbye<|eot|>"
        "<|h|>assistant<|/h|>\n\n"
    ),
    "a namespace that looks back": "3",
    "alternating turns": (
        "[INST]   Grüße <b>&</b> 😀  [/INST] Hi</s>[INST] Be brief.\n\nbye [/INST]"
    ),
    "macros and filters": (
        "system, user, assistant, user|SYSTEM/USER/ASSISTANT/USER|2|['assistant', 'system']|2|c|3"
    ),
    "breaks, continues and blocks": "  user\n  assistant\nkept",
    "thinking cut away": (
        "Truesystem:1system-1Falseuser:2user-1Falseassistant:3assistant-1Falseuser:4user-1"
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_common_constructs_render_as_expected(name: str) -> None:
    assert _template(IN_THE_STYLE_OF[name]).render(TALK) == EXPECTED[name]


def test_json_is_written_without_html_escapes_and_readable() -> None:
    text = _template("{{ tools|tojson }}").render(TALK, tools=TOOLS)
    assert '"größe"' in text
    assert '"<int>"' in text


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_THE_STYLE_OF)
def test_everything_renders_as_in_transformers(name: str) -> None:
    rendering = pytest.importorskip("transformers.utils.chat_template_utils")
    theirs = rendering._compile_jinja_template(IN_THE_STYLE_OF[name])
    names = {"bos_token": "<s>", "eos_token": "</s>", "documents": None}
    for tools in (None, TOOLS):
        expected = theirs.render(messages=TALK, tools=tools, add_generation_prompt=True, **names)
        assert _template(IN_THE_STYLE_OF[name]).render(TALK, tools=tools) == expected


def test_a_templates_own_refusal_reaches_the_client() -> None:
    template = _template("{{ raise_exception('Only user messages, please') }}")
    with pytest.raises(InvalidRequest, match="Only user messages, please") as caught:
        template.render(TALK)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        ("{{ 'a' + messages[0].content }}", [{"role": "user", "content": ["parts"]}]),
        ("{{ messages[0].content.strip() }}", [{"role": "user"}]),
        ("{{ messages[5].content }}", []),
        ("{{ 1 // 0 }}", []),
        ("{{ messages[0].content|int + 'x' }}", [{"content": "7"}]),
        ("{{ messages|tojson }}", [{"role": "user", "content": object()}]),
    ],
)
def test_messages_that_a_template_cannot_handle_are_the_requests_fault(
    source: str, messages: Sequence[Mapping[str, Any]]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        _template(source).render(messages)
    assert caught.value.param == "messages"
    assert "Traceback" not in caught.value.message


def test_further_variables_are_passed_but_replace_nothing() -> None:
    template = _template("{{ enable_thinking }}|{{ messages|length }}|{{ bos_token }}|{{ tools }}")
    variables = {
        "enable_thinking": False,
        "messages": [],
        "bos_token": "fake",
        "tools": "fake",
        "raise_exception": "fake",
    }
    assert template.render(TALK, variables=variables) == "False|4|<s>|None"


def test_templates_know_the_date_that_they_are_given() -> None:
    day = datetime(2031, 2, 3, 4, 5, 6)
    template = _template("{{ strftime_now('%d %b %Y') }}", now=lambda: day)
    assert template.render(TALK) == "03 Feb 2031"


KEEPS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}{{ suffix }}"
TRIMS = "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}<end>\n{% endfor %}{{ suffix }}"
STARTED = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Sure, "}]


@pytest.mark.parametrize(
    ("source", "expected"),
    [(KEEPS, "<user>hi<end>\n<assistant>Sure, "), (TRIMS, "<user>hi<end>\n<assistant>Sure,")],
)
def test_a_final_message_can_be_continued(source: str, expected: str) -> None:
    text = _template(source).render(
        STARTED, continue_final_message=True, variables={"suffix": "Sure, "}
    )
    assert text == expected


def test_the_messages_of_the_caller_stay_as_they_are() -> None:
    before = [dict(message) for message in STARTED]
    _template(KEEPS).render(STARTED, continue_final_message=True)
    assert before == STARTED


@pytest.mark.parametrize(
    "messages", [[], [{"role": "user"}], [{"role": "user", "content": [{"type": "text"}]}]]
)
def test_what_cannot_be_continued_is_refused(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidRequest, match="continued"):
        _template(KEEPS).render(messages, continue_final_message=True)


def test_a_template_that_drops_the_final_message_cannot_continue_it() -> None:
    with pytest.raises(InvalidRequest, match="does not show"):
        _template("{{ messages[0].content }}").render(STARTED, continue_final_message=True)

"""No template makes the gateway hang, grow or run code: it gets an error of ours, soon."""

import resource
import time

import pytest

from steelyard.checkpoints import SpecialTokens
from steelyard.contract.clock import VirtualClock
from steelyard.contract.errors import CheckpointError, InvalidRequest
from steelyard.text import ChatTemplate, TemplateLimits
from tests.text.bombs import MEMORY_BOMBS, TIME_BOMBS

MESSAGES = [{"role": "user", "content": "hello"}]
_MAX_GROWTH_BYTES = 600 * 1024 * 1024


def _render(source: str, limits: TemplateLimits | None = None) -> str:
    return ChatTemplate(source, "t.jinja", SpecialTokens(), limits=limits).render(MESSAGES)


@pytest.mark.parametrize("name", TIME_BOMBS)
def test_endless_work_ends_in_time(name: str) -> None:
    start_s = time.perf_counter()
    with pytest.raises((InvalidRequest, CheckpointError)):
        _render(TIME_BOMBS[name], TemplateLimits(time_s=0.4))
    assert time.perf_counter() - start_s < 3.0


@pytest.mark.parametrize("name", MEMORY_BOMBS)
def test_endless_growth_ends_small(name: str) -> None:
    before = _peak_bytes()
    start_s = time.perf_counter()
    with pytest.raises((InvalidRequest, CheckpointError)):
        _render(MEMORY_BOMBS[name])
    assert _peak_bytes() - before < _MAX_GROWTH_BYTES
    assert time.perf_counter() - start_s < 5.0


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ ''|attr('__class__') }}",
        "{{ [''.__class__.__mro__]|map(attribute='__subclasses__')|list }}",
        "{{ messages|map(attribute='__class__')|list }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ '{0[__class__]}'.format({}) }}",
        "{{ ('{0.__class__}'|attr('format'))(1) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__closure__ }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ joiner.__init__.__builtins__ }}",
        "{{ namespace.__init__ }}",
        "{{ range.__class__ }}",
        "{{ dict.__base__ }}",
        "{{ loop.__class__ }}{% for x in [1] %}{{ loop._LoopContext__iterable }}{% endfor %}",
        "{% macro m() %}{% endmacro %}{{ m.__call__.__globals__ }}{{ m._func }}",
        "{{ self._TemplateReference__context }}",
        "{{ environment }}{{ context }}",
        "{% set ns = namespace() %}{{ ns.__dict__ }}{{ ns._Namespace__attrs }}",
    ],
)
def test_the_insides_of_python_are_out_of_reach(source: str) -> None:
    try:
        text = _render(source)
    except (InvalidRequest, CheckpointError):
        return
    for word in ("class", "built-in", "function", "module", "object at", "<"):
        assert word not in text


@pytest.mark.parametrize(
    "call",
    [
        "messages.append(1)",
        "messages[0].update({})",
        "messages[0].pop('role')",
        "messages.sort()",
        "messages.clear()",
        "''.encode('utf-16')",
        "'x'.format_map({})",
        "'{0}'.format_map({})",
        "(1).bit_length()",
        "[].extend([1])",
        "{}.setdefault('a', 1)",
        "messages()",
        "'x'()",
        "namespace(_x=1)",
        "namespace([('_x', 1)])",
        "namespace(**{'__class__': 1})",
        "range.mro()",
        "lipsum()",
        "caller()",
    ],
)
def test_only_listed_calls_are_possible(call: str) -> None:
    messages = [{"role": "user", "content": "hello"}]
    template = ChatTemplate("{{ " + call + " }}", "t.jinja", SpecialTokens())
    with pytest.raises((InvalidRequest, CheckpointError)):
        template.render(messages)
    assert messages == MESSAGES


@pytest.mark.parametrize(
    "source",
    [
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% from 'x' import y %}",
        "{% extends 'x' %}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% autoescape true %}{% endautoescape %}",
        "{{ messages|random }}",
        "{{ messages|pprint }}",
        "{{ messages|nosuchfilter }}",
        "{{ messages is nosuchtest }}",
        "{% endfor %}",
        "{% for %}",
        "{{ 'unclosed }}",
        "{{ " + "(" * 5000 + ")" * 5000 + " }}",
        "{% if x %}" * 300 + "{% endif %}" * 300,
        "{% for x in y %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "-" * 5000 + "1 }}",
        "x" * 300_000,
    ],
)
def test_templates_that_cannot_be_are_refused_when_they_are_loaded(source: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        ChatTemplate(source, "t.jinja", SpecialTokens())
    assert caught.value.param == "t.jinja"
    assert len(caught.value.message) < 700


def test_every_limit_can_be_set_and_is_named_when_reached() -> None:
    cases = [
        (TemplateLimits(steps=10), "{% for i in range(20) %}{% endfor %}", "10 steps"),
        (TemplateLimits(output_chars=5), "123456", "5 characters"),
        (TemplateLimits(value_chars=5), "{{ 'ab' * 3 }}", "5 characters"),
        (TemplateLimits(total_chars=9), "{{ 'ab' * 2 }}{{ 'ab' * 2 }}", "9 characters"),
    ]
    for limits, source, words in cases:
        with pytest.raises(InvalidRequest, match=words):
            _render(source, limits)
    with pytest.raises(CheckpointError, match="more than 5"):
        _render("123456", TemplateLimits(source_chars=5))


def test_time_is_the_clocks() -> None:
    clock = VirtualClock()

    class Jumping(VirtualClock):
        """Runs a second further with every look."""

        def now(self) -> float:
            self.jump(1.0)
            return super().now()

    source = "{% for m in messages %}{% endfor %}{% for m in messages %}{% endfor %}"
    calm = ChatTemplate(source, "t", SpecialTokens(), clock=clock)
    assert calm.render(MESSAGES) == ""
    hasty = ChatTemplate(
        source, "t", SpecialTokens(), clock=Jumping(), limits=TemplateLimits(time_s=1.5)
    )
    with pytest.raises(InvalidRequest, match=r"longer than 1\.5 s"):
        hasty.render(MESSAGES)


def test_a_limit_reached_once_does_not_count_for_the_next_conversation() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "t",
        SpecialTokens(),
        limits=TemplateLimits(steps=100),
    )
    for _ in range(3):
        with pytest.raises(InvalidRequest, match="steps"):
            template.render(MESSAGES * 100)
        assert template.render(MESSAGES) == "hello"


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

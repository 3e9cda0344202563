"""The Jinja environment in which a model's chat template runs.

Set up as transformers sets up its own (so templates render the same), with three things on top of
Jinja's immutable sandbox: only the methods and functions listed here can be called, everything
that can make large values is metered, and the template's own loops, macros and comparisons carry a
meter (`_template_instrument`). Compiling and error messages are `chat_template`'s.
"""

import re
from collections.abc import Callable
from datetime import datetime
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import jinja2
import jinja2.ext
from jinja2.exceptions import SecurityError, TemplateRuntimeError
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from steelyard.text._template_budget import (
    TemplateLimitExceeded,
    charge_chars,
    charge_steps,
    require_room,
    require_weight,
)
from steelyard.text._template_filters import guarded_filters
from steelyard.text._template_guards import (
    MAX_INTEGER_BITS,
    charge_result,
    guard_brace_format,
    guard_percent_format,
)
from steelyard.text._template_methods import guard_method

__all__ = ["TemplateEnvironment", "TemplateRefusal"]

_MAX_DATE_FORMAT = 100
_OBJECTS_TO_CALL = (Macro, LoopContext, Joiner, Undefined)


class TemplateRefusal(Exception):
    """The template itself refuses the messages, through `raise_exception`."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Make one per template. Runs only under a `running_budget`."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, jinja2.ext.loopcontrols],
            finalize=_emit,
        )
        self.filters = guarded_filters()
        self.globals = {
            "cycler": Cycler,
            "dict": dict_of,
            "joiner": Joiner,
            "namespace": TemplateNamespace,
            "raise_exception": raise_exception,
            "range": self.globals["range"],
            "strftime_now": _strftime_now(now),
        }
        self.tests = {**self.tests, "in": _contains}
        for meter in _METERS:
            setattr(self, meter.__name__, meter)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        # Named as in Jinja, so that templates may use any keyword argument.
        if isinstance(__obj, FunctionType) and __obj in _METERS:
            return __obj(*args)
        charge_steps()
        if isinstance(__obj, BuiltinMethodType | MethodType):
            args = guard_method(__obj, args, kwargs)
        elif not __self._may_call(__obj):
            raise SecurityError("the template calls something that it may not call")
        return charge_result(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Operators that can make more than they are given."""
        charge_steps()
        if operator == "%" and isinstance(left, str):
            guard_percent_format(left, right)
        elif operator == "*":
            _guard_product(left, right)
        elif operator == "**":
            _guard_power(left, right)
        return charge_result(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """As Jinja's, but keys are scalars: hashing or naming nested values can take for ever."""
        if isinstance(argument, tuple | list | dict):
            raise SecurityError("a list or an object is no key")
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> Any:
        """`str.format` in Jinja's own safe version, metered; `format_map` does not exist."""
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else _GuardedFormat(value, wrapped)

    def _may_call(self, target: Any) -> bool:
        if isinstance(target, (*_OBJECTS_TO_CALL, _GuardedFormat)):
            return True
        return any(target is function for function in self.globals.values())


class TemplateNamespace(Namespace):
    """Jinja's namespace, without access to underscored names and without showing its content."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # Without a named first parameter, so that templates may write `namespace(self=…)`.
        require_weight([*args[1:]])
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _refuse_private(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks the assistant's words for training; here it does nothing."""

    tags = {"generation"}  # noqa: RUF012  as Jinja declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


class _GuardedFormat:
    """A text's `format`, called from a template."""

    def __init__(self, method: Any, wrapped: Callable[..., str]) -> None:
        self._text: str = method.__self__
        self._is_plain = method.__name__ == "format"
        self._wrapped = wrapped

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        if not self._is_plain:
            raise SecurityError("the method 'format_map' of str is not available")
        guard_brace_format(self._text, [*args, *kwargs.values()])
        return self._wrapped(*args, **kwargs)


def metered(chars: int) -> bool:
    """A step, in which so many characters are made. True, so that it fits before an `and`."""
    charge_steps()
    charge_chars(chars)
    return True


def weighed(value: Any) -> Any:
    """The value, once it is known to be fit for comparison."""
    require_weight(value)
    return value


def charged(value: Any) -> Any:
    """A copy that was just made, such as a slice."""
    charge_steps()
    return charge_result(value)


def concatenated(*values: Any) -> str:
    """The operator `~`."""
    charge_steps()
    require_room(require_weight(values))
    text = "".join([str(value) for value in values])
    charge_chars(len(text))
    return text


_METERS = frozenset((metered, weighed, charged, concatenated))
"""Called by the code that `_template_instrument` adds; a template cannot name them."""


def dict_of(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """The function `dict`, without the class that it is in Python."""
    require_weight([*args, *kwargs.values()])
    return dict(*args, **kwargs)


def raise_exception(message: Any) -> None:
    """How templates refuse messages."""
    require_weight(message)
    raise TemplateRefusal(str(message))


def _contains(value: Any, container: Any) -> bool:
    """The test `in`."""
    return weighed(value) in weighed(container)


def _strftime_now(now: Callable[[], datetime]) -> Callable[[str], str]:
    def strftime_now(format: str) -> str:  # noqa: A002  the name that templates may use
        if len(format) > _MAX_DATE_FORMAT or re.search(r"\d{3}", format):
            raise TemplateLimitExceeded("it formats the date to an unusual length")
        return now().strftime(format)

    return strftime_now


def _emit(value: Any) -> str:
    """Every value that a template prints, on its way into the output or a macro's result."""
    charge_steps()
    if not isinstance(value, str):
        require_weight(value)
        value = str(value)
    charge_chars(len(value))
    return str(value)


def _guard_product(left: Any, right: Any) -> None:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(count, int):
            require_room(len(sequence) * max(count, 0))
    if isinstance(left, int) and isinstance(right, int):
        _guard_bits(left.bit_length() + right.bit_length())


def _guard_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int):
        _guard_bits(base.bit_length() * max(exponent, 0))


def _guard_bits(bits: int) -> None:
    if bits > MAX_INTEGER_BITS:
        raise TemplateLimitExceeded("it makes an enormous number")


def _refuse_private(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise TemplateRuntimeError(f"a namespace has no attribute {name!r}")

"""Options that belong together, as one dataclass that several commands share.

    @dataclass(frozen=True, kw_only=True)
    class Server:
        PANEL: ClassVar[str] = "The server"
        url: Annotated[str, typer.Argument()]

    @app.command()
    @with_flag_groups
    def measure(server: Server, load: Load) -> None: ...

typer sees every field as an option of the command; the function gets whole groups. `options` holds
single options.
"""

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args

from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

__all__ = ["with_flag_groups"]

_REQUIRED = inspect.Parameter.empty


def with_flag_groups(function: Callable[..., None]) -> Callable[..., None]:
    """The command that typer can read. Every parameter of `function` must be a group."""
    groups = {name: p.annotation for name, p in inspect.signature(function).parameters.items()}
    fields = {name: dataclasses.fields(group) for name, group in groups.items()}

    @functools.wraps(function)
    def command(**values: Any) -> None:
        function(
            **{
                name: group(**{field.name: values[field.name] for field in fields[name]})
                for name, group in groups.items()
            }
        )

    parameters = [
        _parameter(field, getattr(group, "PANEL", None))
        for name, group in groups.items()
        for field in fields[name]
    ]
    # typer asks both for what a command takes.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameter(field: "dataclasses.Field[Any]", panel: str | None) -> inspect.Parameter:
    """A field as typer's parameter, shown in the panel of its group."""
    kind, info = get_args(field.type)
    assert isinstance(info, OptionInfo | ArgumentInfo), f"{field.name} says nothing to typer"
    shown: ParameterInfo = copy.copy(info)
    if isinstance(info, OptionInfo):
        shown.rich_help_panel = panel
    default = _REQUIRED if field.default is dataclasses.MISSING else field.default
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, shown],
    )

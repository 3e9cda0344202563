"""The models that clients may ask for by name.

One today, several later; which replica of a model serves a request is `failover`'s business.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from steelyard.contract import Engine, EngineStatus
from steelyard.contract.errors import Forbidden, UnknownModel
from steelyard.gateway.caller import Caller
from steelyard.gateway.ports import TextModel

__all__ = ["ModelTable", "ServedModel"]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A name, the engine behind it, and the text model that goes with it."""

    name: str
    engine: Engine
    text: TextModel
    created: int
    """Unix time at which the model began to be served; `/v1/models` reports it."""
    statuses: Callable[[], Awaitable[Mapping[str, EngineStatus]]] | None = None
    """Of the replicas behind the engine, by name; None when it is a single one."""


class ModelTable:
    """Models by name; at least one."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        assert models, "a door without a model"
        self._by_name = {model.name: model for model in models}
        self._default = models[0]

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._by_name.values())

    def visible(self, caller: Caller) -> list[ServedModel]:
        """Those that the caller may use."""
        return [model for model in self._by_name.values() if caller.may_use(model.name)]

    def find(self, name: str | None, caller: Caller) -> ServedModel:
        """The model called `name`; None means the first that the caller may use.

        Raises `UnknownModel`, or `Forbidden` for one that is served to others.
        """
        if name is None:
            return self._first(caller)
        model = self._by_name.get(name)
        if model is None:
            raise UnknownModel(
                f"the model {name[:100]!a} is not served here", param="model", fix=self._use(caller)
            )
        caller.require_model(model.name)
        return model

    def _first(self, caller: Caller) -> ServedModel:
        if caller.may_use(self._default.name):
            return self._default
        for model in self.visible(caller):
            return model
        raise Forbidden("these credentials allow no model that is served here", param="model")

    def _use(self, caller: Caller) -> str:
        names = sorted(model.name for model in self.visible(caller))
        return f"Use {', '.join(names)}." if names else ""

    def metric_name(self, name: str) -> str:
        """`name` when it is served; otherwise `unknown`, so that clients cannot invent series."""
        return name if name in self._by_name else "unknown"

"""The models that clients may ask for by name.

One today, several later; which replica of a model serves a request will be routing's business.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steelyard.contract import Engine
from steelyard.contract.errors import UnknownModel
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


class ModelTable:
    """Models by name; at least one."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        assert models, "a door without a model"
        self._by_name = {model.name: model for model in models}
        self._default = models[0]

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._by_name.values())

    def find(self, name: str | None) -> ServedModel:
        """The model called `name`; None means the first. Raises `UnknownModel`."""
        if name is None:
            return self._default
        model = self._by_name.get(name)
        if model is None:
            names = ", ".join(sorted(self._by_name))
            raise UnknownModel(
                f"the model {name[:100]!a} is not served here", param="model", fix=f"Use {names}."
            )
        return model

    def metric_name(self, name: str) -> str:
        """`name` when it is served; otherwise `unknown`, so that clients cannot invent series."""
        return name if name in self._by_name else "unknown"

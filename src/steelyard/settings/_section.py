"""What every section of the deployment file is: frozen, closed, strict about types.

Attribute docstrings describe keys and class docstrings describe sections, in
`steelyard config schema` and in the reference.
"""

from pydantic import BaseModel, ConfigDict

__all__ = ["Section"]


class Section(BaseModel):
    """A group of keys. Input never appears in pydantic's messages: it may be a secret."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

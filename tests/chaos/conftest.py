"""The command line's stage, for services that things are done to."""

from ..cli.conftest import stage

__all__ = ["stage"]

"""The deployment file: defaults < file < environment < flags, and where each value came from.

`resolve` is the door: it returns a `Resolved` deployment or raises `SettingsError` with every
problem at once. No other package reads the environment.
"""

from steelyard.settings.deployment import Deployment
from steelyard.settings.layers import Flag, Source, SourceKind
from steelyard.settings.paths import default_cache_dir
from steelyard.settings.problems import Problem
from steelyard.settings.resolve import Examination, Resolved, Row, examine, resolve
from steelyard.settings.secret_file import read_secret

__all__ = [
    "Deployment",
    "Examination",
    "Flag",
    "Problem",
    "Resolved",
    "Row",
    "Source",
    "SourceKind",
    "default_cache_dir",
    "examine",
    "read_secret",
    "resolve",
]

"""Steelyard serves open LLMs at the balance point of throughput and latency.

The package root holds the version only; import what you need from a floor
(`steelyard.contract`, `steelyard.gateway`, …). `docs/architecture.md` draws the floors.
"""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["__version__"]

try:
    __version__ = version("steelyard")
except PackageNotFoundError:  # a source tree on PYTHONPATH, never installed
    __version__ = "0+unknown"

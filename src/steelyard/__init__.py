"""Steelyard serves open LLMs at the balance point of throughput and latency.

The package root holds the version only; import what you need from a floor
(`steelyard.contract`, `steelyard.gateway`, …). `docs/architecture.md` draws the floors.
"""

__all__ = ["__version__"]

__version__: str


def __getattr__(name: str) -> str:
    """`__version__`, looked up when it is asked for: that takes longer than `--help`."""
    if name != "__version__":
        raise AttributeError(name)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("steelyard")
    except PackageNotFoundError:  # a source tree on PYTHONPATH, never installed
        return "0+unknown"

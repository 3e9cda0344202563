"""Fixtures of the engine process tests."""

from tests.engine_processes import engine_folder, start_engine

__all__ = ["engine_folder", "start_engine"]

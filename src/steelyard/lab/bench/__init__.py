"""Measurements that people ask for: a run, a curve over concurrency, a sweep over rates, stress.

Each returns data; `report` writes them down, `cli.bench` shows them.
"""

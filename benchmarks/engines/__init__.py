"""Compares our server with other CPU engines on this machine: `python -m benchmarks.engines`.

README.md says what is measured and how; `campaign` is the order of things, `report` the tables.
"""

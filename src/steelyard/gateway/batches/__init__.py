"""`/v1/files` and `/v1/batches`: many requests in one file, done when nobody else needs the engine.

`routes` answers clients, `archive` keeps files and progress on disk, `runner` works through the
lines. Each line walks the path of any other request (`gateway.generation`), in a priority class
below all others.
"""

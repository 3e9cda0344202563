"""Floor 6: the `steelyard` command. Parses, wires concrete classes (`wiring`), and prints.

Nothing imports it; what it decides is at most what to show.
"""

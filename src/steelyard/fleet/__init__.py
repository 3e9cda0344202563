"""Floor 5: keeps engine processes up: starts, watches, restarts and stops them.

`lifecycle` decides, `replica` carries it out, `process` alone touches the operating system.
Requests do not pass through here.
"""

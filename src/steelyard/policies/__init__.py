"""Decisions above engines: which replica, when to give one up, what may be tried again.

Pure: time comes in as `now_s`, chance as a seeded generator, and nothing here waits, sends or
knows an event loop. `gateway.failover` carries decisions out; simulations drive the same classes.
What happens inside an engine is decided in `scheduling`.
"""

"""Recurring schedules in the engine: their table, the calls that change it, and their firings.

A schedule is a row of a table that SCHEDULE frames change and checkpoints store. When an instant is
due, one MULTI frame has the messages that fire and the next instants of their schedules.
Imports: broker.rules.schedules, send, lookup, changes, storage.
Begin with `table.py`, then `runner.py`.
"""

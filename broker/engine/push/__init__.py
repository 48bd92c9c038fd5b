"""Targets of pushes: where the messages of a group are pushed to, as state of the engine.

Read `targets` first; `commands` has the decisions. The pushes themselves are made by `broker/push`.
"""

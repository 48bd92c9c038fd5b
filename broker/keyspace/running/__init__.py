"""Runs the commands of sessions: checks, MULTI, blocking, WATCH, pub/sub and scripts.

Commands import `run` and what is below it; only `executor` and `applier` import the commands.
Begin with `executor`.
"""

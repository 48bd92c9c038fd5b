"""Runs the commands of sessions: checks, MULTI, blocking, WATCH, pub/sub and scripts.

Commands import `registry` and what is below it; only `executor` imports the commands.
Begin with `executor`.
"""

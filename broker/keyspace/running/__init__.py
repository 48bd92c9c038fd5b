"""Runs commands for sessions: checks, MULTI, waits, WATCH, pub/sub and scripts.

Imports: registry, values.
Begin with `executor`.
"""

"""Observation of a host: logs, metrics, and the lag of the event loop.

Imports: engine.
Begin with `metrics`.
"""

"""What an operator sees of a host: logs, metrics, how late the loop is.

Imports: engine.
Begin with `metrics`.
"""

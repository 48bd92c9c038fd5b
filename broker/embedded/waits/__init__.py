"""What calls of an embedded broker wait for, and how threads and event loops wait for it.

Imports: host, engine.
Begin with `steps`.
"""

"""The physical log: frames, their payloads, segments, and the tick beside it.

Imports: files, messages, columns.
Begin with `physical_log`.
"""

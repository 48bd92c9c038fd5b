"""Values that keys hold, and texts of numbers, ranges and patterns.

Imports: nothing of the keyspace.
Begin with `kinds`.
"""

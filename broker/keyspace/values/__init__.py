"""Values that keys hold, and texts of numbers, ranges and patterns.

Imports: of the keyspace only `errors`.
Begin with `sorted_set`; `keyspace` lists the kinds.
"""

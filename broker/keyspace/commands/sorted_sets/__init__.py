"""Commands of sorted sets.

Imports: registry, options, values.
Begin with `members`.
"""

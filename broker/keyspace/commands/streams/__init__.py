"""Commands of streams and their groups.

Imports: registry, options, values.
Begin with `entries`.
"""

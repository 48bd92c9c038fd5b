"""The faults of drills, one module a kind.

Imports: drills.
Begin with `kills`.
"""

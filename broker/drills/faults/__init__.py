"""The faults of drills, one module for each kind.

Imports: drills.
Begin with `kills`.
"""

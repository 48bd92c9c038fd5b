"""The faults of drills, one module for each subject.

Imports: drills.
Begin with `processes`.
"""

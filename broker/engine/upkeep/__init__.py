"""Upkeep: checkpoints, retention, compaction and the archive, as work in slices.

Imports: everything of the engine but the engine itself.
Begin with `checkpoints`.
"""

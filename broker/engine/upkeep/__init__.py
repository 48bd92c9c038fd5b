"""Upkeep: checkpoints, retention, compaction and the archive, as background work.

Imports: all rooms of the engine, but not `engine`.
Begin with `checkpoints`.
"""

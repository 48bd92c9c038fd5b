"""The far tier: rows of hours that are far away, in a few sorted files.

Imports: files, messages, columns.
Begin with `far_tier`.
"""

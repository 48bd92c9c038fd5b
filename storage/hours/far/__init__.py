"""The far tier: rows of hours that are far ahead, in a few sorted files.

Imports: files, messages, columns.
Begin with `far_tier`.
"""

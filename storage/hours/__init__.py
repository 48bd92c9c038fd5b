"""Delay hours: rows of one due hour in files and in memory, and the store of all hours.

Imports: files, messages, columns.
Begin with `hour_store`.
"""

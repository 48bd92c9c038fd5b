"""Merges the sends, receives and settles of one turn of the loop.

Imports: engine, storage. The host is imported for its types only.
Begin with `sends`.
"""

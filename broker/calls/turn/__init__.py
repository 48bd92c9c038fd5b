"""Calls of one turn of the loop, done together: sends, receives and settles.

Imports: engine, storage. Their host by its type only.
Begin with `turn`.
"""

"""Deliver: ready messages are leased, settled, expired and claimed.

Imports: ready, apply, lookup, topics, storage.
Begin with `receiving`.
"""

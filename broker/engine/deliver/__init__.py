"""Deliver: ready messages are leased, settled, expired or held by claims.

Imports: ready, apply, topics, storage.
Begin with `receiving`.
"""

"""Views: lists, counts and traces. They change nothing.

Imports: lookup, topics, storage.
Begin with `listing`.
"""

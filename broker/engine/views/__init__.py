"""Views: lists, counts and life lines. They change nothing.

Imports: topics, storage.
Begin with `listing`.
"""

"""Views: lists, counts and traces. They change nothing.

Imports: find, late, lookup, ready, schedules, topics, storage.
Begin with `listing`.
"""

"""Views: lists, counts and traces. They change nothing.

Imports: late, lookup, ready, schedules, topics, storage.
Begin with `listing`.
"""

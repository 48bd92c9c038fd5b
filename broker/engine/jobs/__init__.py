"""Jobs: cancel, reschedule or replay all messages that match a filter, as background work.

Imports: changes, deliver, lookup, send, topics, views, storage.
Begin with `jobs`.
"""

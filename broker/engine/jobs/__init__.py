"""Jobs: cancel, reschedule or replay all messages that match a filter, as background work.

Imports: control, lookup, views, storage.
Begin with `jobs`.
"""

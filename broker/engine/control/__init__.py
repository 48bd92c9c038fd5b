"""Control: cancel, reschedule and replay, of one message, of many, and by jobs.

Imports: apply, topics, views, storage.
Begin with `changing`.
"""

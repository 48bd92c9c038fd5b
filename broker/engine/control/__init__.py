"""Control: cancel, reschedule and replay messages that were looked up.

Imports: apply, lookup, topics, storage.
Begin with `changes`.
"""

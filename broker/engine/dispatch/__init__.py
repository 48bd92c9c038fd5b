"""Dispatch: from committed rows through the timing wheel to the ready queues.

Imports: deliver/ready_again, ready, topics, storage, wheel.
Begin with `dispatching`.
"""

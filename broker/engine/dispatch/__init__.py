"""Dispatch: durable rows of hours come to the wheel, and from there to the ready queues.

Imports: ready, storage, wheel.
Begin with `dispatching`.
"""

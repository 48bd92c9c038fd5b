"""Ready queues of groups: which messages may be handed out, in which order, and key locks.

Imports: storage. Nothing of the engine but errors.
Begin with `ready_queues`.
"""

"""Ready queues of groups: what may be handed out, in which order, and what waits for its key.

Imports: storage. Nothing of the engine but errors and limits.
Begin with `ready_lanes`.
"""

"""What each kind of frame changes: one function a kind, for the leader, followers and a start.

Imports: state, topics, ready, deliver/leases, storage.
Begin with `applying`.
"""

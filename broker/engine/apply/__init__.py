"""What each kind of frame changes: one function a kind, for the leader, followers and a start.

Imports: state, topics, ready, storage; of deliver its tables, and `ready_again`.
Begin with `frames`.
"""

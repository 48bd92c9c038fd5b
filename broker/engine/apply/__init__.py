"""What frames change: one function a kind of frame, used by a start, a follower and the leader.

Imports: state, topics, ready, storage.
Begin with `applying`.
"""

"""How a node becomes leader, and what it does as the leader.

Imports: replication, but not `node`, which uses this folder.
Begin with `leader` (ships and counts) and `leadership` (what is allowed), then `campaign`.
"""

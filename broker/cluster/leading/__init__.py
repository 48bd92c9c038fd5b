"""What a member does to lead: the gate, pace of rounds, waiting sends, hand-overs.

Imports: replication, the host, the engine; of the cluster `watch`, `peers`, and types.
Begin with `succession` (whether the engine leads), then `lead`.
"""

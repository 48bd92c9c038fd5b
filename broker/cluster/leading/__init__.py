"""What a member does to lead: candidacy, pace of rounds, the gate, waiting sends, hand-overs.

Imports: replication, the host, the engine; of the cluster `member_view`, `fitness`, `peers`.
Begin with `succession` (whether the engine leads), then `lead`.
"""

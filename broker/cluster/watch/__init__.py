"""What a member observes and reports: clocks, a missing majority, differing addresses; metrics.

Imports: replication, the host, `members`, `copies`; the metrics also `member`.
Begin with `member_watch`.
"""

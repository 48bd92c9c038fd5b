"""What a member watches: clocks, its majority, who leads; and its metrics.

Imports: replication, the host.
Begin with `member_watch`.
"""

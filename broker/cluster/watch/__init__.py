"""What a member observes and reports: fitness to lead, clocks, a missing majority; metrics.

Imports: replication, the host, `members`, `copies`; the metrics also `member`.
`fitness` is pure. Begin with `member_watch`.
"""

"""Membership: joining, changes, statuses, operator calls, stale data folders, recovery.

Imports: replication, storage, the host; `operator_calls` and `member_changes` also `member`.
Begin with `known_members`, then `member_changes`.
"""

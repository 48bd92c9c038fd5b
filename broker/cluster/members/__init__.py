"""Membership: changes, statuses, operator calls, stale data folders, recovery.

Imports: replication, storage, the host; `operator_calls` also `member`.
Begin with `known_members`, then `operator_calls`.
"""

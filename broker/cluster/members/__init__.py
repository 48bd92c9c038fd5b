"""Who belongs to the cluster: joining, changes, folders that were swapped, recovery.

Imports: replication, storage, the host.
Begin with `known_members`.
"""

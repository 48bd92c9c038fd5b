"""The keyspace of Redis commands in the log: frames of effects, and snapshots.

Imports: broker.keyspace, storage.
Begin with `keyspace_log`.
"""

"""The Redis keyspace in the log and in files: frames with effects, and snapshots.

Imports: broker.keyspace, storage.
Begin with `keyspace_part`.
"""

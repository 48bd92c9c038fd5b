"""Snapshot files of the keyspace: layout, encoding of each kind of value, writing and reading."""

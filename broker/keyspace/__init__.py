"""The Redis-compatible keyspace: databases, values, commands and scripts.

Synchronous and pure: time and randomness come in, replies and effects go out. `broker/resp` puts it
on sockets, the engine puts its effects into the log.
"""

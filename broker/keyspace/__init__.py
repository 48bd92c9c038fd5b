"""The Redis-compatible keyspace: databases, values, commands and scripts.

Synchronous and pure: time and randomness come in, replies and effects go out. `broker/resp` serves
it on sockets, and the engine logs its effects.

Imports go one way: values, `keyspace`, `running/session`, `running/shared_state`, `registry`,
commands, `running/executor`, `effects`. Begin with `keyspace`.
"""

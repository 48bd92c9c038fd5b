"""The Redis-compatible keyspace: databases, values, commands and scripts.

Synchronous and pure: time and randomness come in, replies and effects go out. `broker/resp` serves
it on sockets, and the engine logs its effects.

Imports go one way: values, `database`, `keyspace`, `running/session`, `running/shared_state`,
`running/run`, `registry`, commands, `running/executor`. Begin with `keyspace`.
"""

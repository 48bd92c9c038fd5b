"""Which keys a command reads and writes, as the key specifications of Redis 7.0.15 say.

A command that only asks whether a key exists, or how long its value is, needs any permission for
the key. By default a command that writes needs permission to write its keys, and one that reads
permission to read them; the tables below have the exceptions. A test compares them with Redis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from delaylog.broker.keyspace.command import Args, Command, keys_of
from delaylog.broker.keyspace.errors import CommandError


class KeyAccess(NamedTuple):
    """What a command does with a key."""

    reads: bool
    writes: bool


READ: Final = KeyAccess(reads=True, writes=False)
WRITE: Final = KeyAccess(reads=False, writes=True)
BOTH: Final = KeyAccess(reads=True, writes=True)
NEITHER: Final = KeyAccess(reads=False, writes=False)

_ALIKE: Final[dict[bytes, KeyAccess]] = {
    **dict.fromkeys(
        b"""incr decr incrby decrby incrbyfloat move hincrby hincrbyfloat lpop rpop blpop brpop spop
        getset getdel getex zincrby zpopmin zpopmax bzpopmin bzpopmax lmpop blmpop zmpop bzmpop
        eval evalsha fcall""".split(),
        BOTH,
    ),
    **dict.fromkeys(
        b"""exists touch type hlen hstrlen hexists llen object|encoding scard sismember strlen watch
        memory|usage zcard xlen""".split(),
        NEITHER,
    ),
    **dict.fromkeys(b"eval_ro evalsha_ro fcall_ro xreadgroup".split(), READ),
}
"""Commands that use all their keys in the same way, which their flags do not tell."""
_FIRST_AND_OTHERS: Final[dict[bytes, tuple[KeyAccess, KeyAccess]]] = {
    **dict.fromkeys(
        b"rename renamenx rpoplpush lmove brpoplpush blmove smove".split(), (BOTH, WRITE)
    ),
    b"copy": (READ, WRITE),
    **dict.fromkeys(
        b"""sinterstore sunionstore sdiffstore zrangestore zunionstore zinterstore
        zdiffstore""".split(),
        (WRITE, READ),
    ),
}


def key_accesses(command: Command, argv: Args) -> Iterable[tuple[bytes, KeyAccess]]:
    """The keys of a command, each with what the command does with it.

    A command whose arguments do not tell its keys has none: it refuses such arguments itself.
    """
    try:
        keys = keys_of(command, argv)
    except (CommandError, IndexError):
        return ()
    name = command.name
    if name == b"set":
        access = BOTH if any(word.lower() == b"get" for word in argv[3:]) else WRITE
        return [(key, access) for key in keys]
    both = _FIRST_AND_OTHERS.get(name)
    if both is not None:
        return [(key, both[at > 0]) for at, key in enumerate(keys)]
    alike = _ALIKE.get(name) or (WRITE if command.write else READ)
    return [(key, alike) for key in keys]

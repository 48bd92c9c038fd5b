"""OBJECT: how values are held; the encodings are those that Redis 7.0 would use."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.number_texts import is_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import Reply, Status
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.sorted_set import SortedSetValue
from delaylog.broker.keyspace.stream import StreamValue
from delaylog.broker.keyspace.values import HashValue, ListValue, SetValue, Value

_EMBEDDED_BYTES_MAX: Final = 44
_SHARED_BELOW: Final = 10_000
_SHARED: Final = 2**31 - 1
_NO_LFU: Final = (
    b"ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that "
    b"when switching between policies at runtime LRU and LFU data will take some time to adjust."
)
_HELP: Final = """\
OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
ENCODING <key>
    Return the kind of internal representation used in order to store the value
    associated with a <key>.
FREQ <key>
    Return the access frequency index of the <key>. The returned integer is
    proportional to the logarithm of the recent access frequency of the key.
IDLETIME <key>
    Return the idle time of the <key>, that is the approximated number of
    seconds elapsed since the last access to the key.
REFCOUNT <key>
    Return the number of references of the value associated with the specified
    <key>.
HELP
    Prints this help."""


def encoding_of(value: Value) -> bytes:
    """What Redis would call the form in which it holds this."""
    if isinstance(value, bytes):
        if len(value) <= 20 and is_int(value):
            return b"int"
        return b"embstr" if len(value) <= _EMBEDDED_BYTES_MAX else b"raw"
    if isinstance(value, bytearray):
        return b"raw"
    if isinstance(value, HashValue):
        return b"hashtable" if value.large else b"listpack"
    if isinstance(value, SetValue):
        return value.encoding
    if isinstance(value, SortedSetValue):
        return b"skiplist" if value.large or value.shown_large else b"listpack"
    if isinstance(value, ListValue):
        return b"quicklist"
    assert isinstance(value, StreamValue)
    return b"stream"


@command("object|encoding", 3, "readonly", keys=(2, 2, 1))
def object_encoding(run: Run, argv: Args) -> Reply:
    """The form in which Redis would hold this value."""
    value = run.database.find(argv[2])
    return None if value is None else encoding_of(value)


@command("object|refcount", 3, "readonly", keys=(2, 2, 1))
def object_refcount(run: Run, argv: Args) -> Reply:
    """1, or for the small numbers that Redis shares the largest count there is."""
    value = run.database.find(argv[2])
    if value is None:
        return None
    if isinstance(value, bytes) and len(value) <= 4 and is_int(value):
        return _SHARED if 0 <= int(value) < _SHARED_BELOW else 1
    return 1


@command("object|idletime", 3, "readonly", keys=(2, 2, 1))
def object_idletime(run: Run, argv: Args) -> Reply:
    """Seconds since the last access; that is not kept, so 0."""
    return None if run.database.find(argv[2]) is None else 0


@command("object|freq", 3, "readonly", keys=(2, 2, 1))
def object_freq(run: Run, argv: Args) -> Reply:
    """Refused: how often keys are accessed is not kept."""
    if run.database.find(argv[2]) is None:
        return None
    raise CommandError(_NO_LFU)


@command("object|help", 2, "loading stale")
def object_help(run: Run, argv: Args) -> Reply:
    """What OBJECT can do."""
    return [Status(line.encode()) for line in _HELP.splitlines()]

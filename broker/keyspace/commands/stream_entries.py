"""Streams: adding, trimming, deleting and ranges of entries.

The effect of XADD contains the id of the new entry, and the effect of trimming the exact result, so
that applying it does not depend on the clock and on node sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import Option, read_options
from delaylog.broker.keyspace.errors import CommandError, syntax, wrong_arity
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import NO_ARRAY, Reply
from delaylog.broker.keyspace.values.number_texts import to_int
from delaylog.broker.keyspace.values.stream import (
    ID_MAX,
    NODE_ENTRIES_MAX,
    SEQUENCE_BITS,
    SEQUENCE_MAX,
    Fields,
    StreamValue,
    id_text,
    parse_end,
    parse_id,
    parse_new_id,
    parse_start,
)

_TRIMMED_AT_ONCE: Final = 100 * NODE_ENTRIES_MAX
"""Most entries that an approximate trimming without LIMIT removes."""
_SMALLER: Final = (
    b"ERR The ID specified in XADD is equal or smaller than the target stream top item"
)
_BOTH: Final = b"ERR syntax error, MAXLEN and MINID options at the same time are not compatible"


@dataclass(slots=True)
class Trimming:
    """The options MAXLEN or MINID, and LIMIT."""

    length: int | None = None
    first_id: int | None = None
    approximate: bool = False
    limit: int = 0

    @property
    def is_asked(self) -> bool:
        """Whether MAXLEN or MINID was given."""
        return self.length is not None or self.first_id is not None

    def trim(self, value: StreamValue) -> int:
        """Trim a stream; returns the number of removed entries."""
        whole = self.approximate
        if self.length is not None:
            return value.trim_to_length(self.length, self.limit, whole_nodes=whole)
        if self.first_id is not None:
            return value.trim_to_id(self.first_id, self.limit, whole_nodes=whole)
        return 0

    def explicit(self, value: StreamValue) -> list[bytes]:
        """Return the arguments with which applying repeats exactly what `trim` has done."""
        if self.length is not None:
            return [b"MAXLEN", b"=", b"%d" % (value.length if self.approximate else self.length)]
        assert self.first_id is not None
        first_id = (value.first_id or ID_MAX) if self.approximate else self.first_id
        return [b"MINID", b"=", id_text(first_id)]


def _take_trimming(argv: Args, *, adds: bool) -> tuple[Trimming, int, bool]:
    """Parse the options of XADD (which end at the id) or XTRIM. Raises CommandError.

    Returns the options, the index after them, and whether a missing stream is created.
    """
    trimming = Trimming()
    limit: int | None = None
    makes = True
    at = 2
    while at < len(argv):
        option, more = argv[at].lower(), len(argv) - at - 1
        if adds and option == b"*":
            break
        if option in (b"maxlen", b"minid") and more:
            if trimming.is_asked:
                raise CommandError(_BOTH)
            trimming.approximate = more > 1 and argv[at + 1] == b"~"
            at += 2 if more > 1 and argv[at + 1] in (b"~", b"=") else 1
            if option == b"minid":
                trimming.first_id = parse_id(argv[at])
            else:
                trimming.length = to_int(argv[at])
                if trimming.length < 0:
                    raise CommandError(b"ERR The MAXLEN argument must be >= 0.")
        elif option == b"limit" and more:
            at += 1
            limit = to_int(argv[at])
            if limit < 0:
                raise CommandError(b"ERR The LIMIT argument must be >= 0.")
        elif adds and option == b"nomkstream":
            makes = False
        elif adds:
            parse_new_id(argv[at])
            break
        else:
            raise syntax()
        at += 1
    if limit and not trimming.is_asked:
        raise CommandError(
            b"ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
        )
    if not adds and not trimming.is_asked:
        raise CommandError(b"ERR syntax error, XTRIM must be called with a trimming strategy")
    if limit is not None and not trimming.approximate:
        raise CommandError(b"ERR syntax error, LIMIT cannot be used without the special ~ option")
    if trimming.approximate:
        trimming.limit = _TRIMMED_AT_ONCE if limit is None else limit
    return trimming, at, makes


def _next_id(value: StreamValue, asked: bytes, now_ms: int) -> int:
    """Return the id of a new entry. Raises CommandError."""
    last = value.last_id
    if last == ID_MAX:
        raise CommandError(
            b"ERR The stream has exhausted the last possible ID, unable to add more items"
        )
    if asked == b"*":
        return max(now_ms << SEQUENCE_BITS, last + 1)
    number, sequence_given = parse_new_id(asked)
    if not sequence_given and number >> SEQUENCE_BITS == last >> SEQUENCE_BITS:
        if last & SEQUENCE_MAX == SEQUENCE_MAX:
            raise CommandError(_SMALLER)
        return last + 1
    if number <= last:
        raise CommandError(_SMALLER)
    return number


@command("xadd", -5, "stream", "write denyoom fast", keys=(1, 1, 1))
def xadd(run: Run, argv: Args) -> Reply:
    """Add an entry: [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] id|* field value …"""
    if argv[2] == b"*":
        trimming, at, makes = None, 2, True
    else:
        trimming, at, makes = _take_trimming(argv, adds=True)
    fields: Fields = tuple(argv[at + 1 :])
    if not fields or len(fields) % 2:
        raise wrong_arity(b"xadd")
    asked = argv[at]
    if asked != b"*" and parse_new_id(asked) == (0, True):
        raise CommandError(b"ERR The ID specified in XADD must be greater than 0-0")
    database, key = run.database, argv[1]
    value = database.of_kind(StreamValue, key)
    if value is None:
        if not makes:
            return None
        value = database.of_kind_or_new(StreamValue, key)
    number = _next_id(value, asked, run.now_ms)
    text = id_text(number)
    value.append(number, fields)
    options: list[bytes] = []
    if trimming is not None and trimming.trim(value):
        options = trimming.explicit(value)
    run.rewrite(b"XADD", key, *options, text, *fields)
    database.changed(key)
    return text


def _entries_gone(run: Run, key: bytes, times: int) -> None:
    """Count removed entries and mark the watchers. Blocked reads wait for new entries only."""
    run.keyspace.dirty += times
    for session in run.database.watchers.get(key, ()):
        session.dirty_watch = True


@command("xtrim", -4, "stream", "write", keys=(1, 1, 1))
def xtrim(run: Run, argv: Args) -> Reply:
    """Remove the first entries: MAXLEN|MINID [=|~] threshold [LIMIT count]."""
    trimming, _, _ = _take_trimming(argv, adds=False)
    value = run.database.of_kind(StreamValue, argv[1])
    if value is None:
        return 0
    gone = trimming.trim(value)
    if gone:
        run.rewrite(b"XTRIM", argv[1], *trimming.explicit(value))
        _entries_gone(run, argv[1], gone)
    return gone


@command("xdel", -3, "stream", "write fast", keys=(1, 1, 1))
def xdel(run: Run, argv: Args) -> Reply:
    """Delete entries by their ids."""
    value = run.database.of_kind(StreamValue, argv[1])
    if value is None:
        return 0
    numbers = [parse_id(text) for text in argv[2:]]
    gone = sum(value.delete(number) for number in numbers)
    if gone:
        value.note_first()
        _entries_gone(run, argv[1], gone)
    return gone


# --------------------------------------------------------------------------- reading


@command("xlen", 2, "stream", "readonly fast", keys=(1, 1, 1))
def xlen(run: Run, argv: Args) -> Reply:
    """Count the entries."""
    value = run.database.of_kind(StreamValue, argv[1])
    return 0 if value is None else value.length


def shown(number: int, fields: Fields) -> Reply:
    """Return an entry as the reply shows it."""
    return [id_text(number), fields]


_RANGE_OPTIONS: Final = {b"count": Option("count", to_int)}


def _range(run: Run, argv: Args, start: int, end: int, *, back: bool) -> Reply:
    count = read_options(argv, 4, _RANGE_OPTIONS).value("count")
    if count is not None and count < 0:
        count = 0
    value = run.database.of_kind(StreamValue, argv[1])
    if value is None:
        return []
    if count == 0:
        return NO_ARRAY
    out: list[Reply] = []
    for number, fields in (value.entries_back if back else value.entries)(start, end):
        out.append([id_text(number), fields])
        if len(out) == count:
            break
    return out


@command("xrange", -4, "stream", "readonly", keys=(1, 1, 1))
def xrange(run: Run, argv: Args) -> Reply:
    """Return the entries from one id to another: start end [COUNT count]."""
    start = parse_start(argv[2])
    return _range(run, argv, start, parse_end(argv[3]), back=False)


@command("xrevrange", -4, "stream", "readonly", keys=(1, 1, 1))
def xrevrange(run: Run, argv: Args) -> Reply:
    """Return the entries from one id to another, descending: end start [COUNT count]."""
    start = parse_start(argv[3])
    return _range(run, argv, start, parse_end(argv[2]), back=True)

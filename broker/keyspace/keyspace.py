"""The keyspace: all databases, their keys and expiry, and the effects that are to be logged.

Commands change values at once and leave *effects*: commands with the same outcome whenever they are
applied (times are absolute, random choices explicit). The host takes the effects of a turn for one
KEYSPACE frame; recovery and followers apply them by the same functions (`effects.py`).

Commands use the methods of `Database`, which handle expiry, watchers and waiters. Only lengths and
read-only access may use `values` directly. After a change a command calls `changed`, once per key.
Commands compare the type of a value by identity, which costs a pointer comparison; a string is
`bytes`. The operations on a value are in the commands of its family.

Expiry polls nothing: there is one bucket a second, ordered by a delay queue. An entry is a hint:
whether the key still expires then is checked when its bucket is due. A key is in a bucket once,
however often its expiry is renewed. Stale hints are dropped once they outnumber the valid ones.
Only the leader removes an expired key, with a DEL as its effect, so applying reads no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random
from types import NoneType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from delaylog.broker.keyspace.errors import wrong_type
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue
from delaylog.wheel import DelayQueue

# --------------------------------------------------------------------------------------- expiry

_BUCKET_MS: Final = 1_000
_FEW: Final = 1_024

DatabaseKey = tuple[int, bytes]
"""Database number and key."""


class ExpiryWheel:
    """Hints to keys by the second in which they expire."""

    def __init__(self) -> None:
        self.buckets: dict[int, dict[DatabaseKey, None]] = {}
        self._queue: DelayQueue[int] = DelayQueue()
        self._now: list[tuple[int, DatabaseKey]] = []
        """A heap: keys of seconds that are due, by the millisecond in which they expire."""
        self.hints = 0
        self.hints_max = _FEW
        """Above this count the owner calls `crowded`."""

    def add(self, database: int, key: bytes, at_ms: int) -> None:
        """Add a hint that a key expires at `at_ms`."""
        second = at_ms // _BUCKET_MS
        bucket = self.buckets.get(second)
        if bucket is None:
            bucket = self.buckets[second] = {}
            self._queue.push(second, second * _BUCKET_MS)
        database_key = (database, key)
        if database_key not in bucket:
            bucket[database_key] = None
            self.hints += 1

    def next_ms(self) -> int | None:
        """Return a lower bound of the next expiry, or None."""
        head = self._queue.head_ms
        if self._now:
            first = self._now[0][0]
            return first if head is None else min(first, head)
        return head

    def due(
        self, now_ms: int, most: int, expires_at: Callable[[DatabaseKey], int | None]
    ) -> list[DatabaseKey]:
        """Remove and return up to `most` expired keys; `expires_at` returns the expiry of a key.

        It looks at up to `most` hints: a second may have half a million.
        """
        self._look_up(now_ms, most, expires_at)
        out: list[DatabaseKey] = []
        while self._now and self._now[0][0] <= now_ms and len(out) < most:
            at_ms, database_key = heappop(self._now)
            if expires_at(database_key) == at_ms:
                out.append(database_key)
        return out

    def _look_up(
        self, now_ms: int, most: int, expires_at: Callable[[DatabaseKey], int | None]
    ) -> None:
        """Move up to `most` hints of seconds that are due to `_now`."""
        while most > 0 and (head_ms := self._queue.head_ms) is not None and head_ms <= now_ms:
            bucket = self.buckets[head_ms // _BUCKET_MS]
            end_ms = head_ms + _BUCKET_MS
            while bucket and most > 0:
                database_key, _ = bucket.popitem()
                self.hints -= 1
                most -= 1
                at_ms = expires_at(database_key)
                # A key that expires later has another hint in a later bucket.
                if at_ms is not None and at_ms < end_ms:
                    heappush(self._now, (at_ms, database_key))
            if not bucket:
                self._queue.pop_due(now_ms)
                del self.buckets[head_ms // _BUCKET_MS]

    def crowded(self, volatile: int) -> bool:
        """Whether most hints are stale, if `volatile` keys expire.

        Sets `hints_max`, the count above which the owner calls this again.
        """
        self.hints_max = 2 * volatile + _FEW
        return self.hints > self.hints_max


# ------------------------------------------------------------------------------ kinds of values


class HashValue(dict[bytes, bytes]):
    """Fields and their values."""

    __slots__ = ()


class ListValue(deque[bytes]):
    """A list; its left end is index 0."""

    __slots__ = ()


class SetValue(set[bytes]):
    """Unordered members."""

    __slots__ = ()


Value: TypeAlias = bytes | HashValue | ListValue | SetValue | SortedSetValue | StreamValue

TYPE_NAMES: dict[type, bytes] = {
    bytes: b"string",
    HashValue: b"hash",
    ListValue: b"list",
    SetValue: b"set",
    SortedSetValue: b"zset",
    StreamValue: b"stream",
}


# --------------------------------------------------------------------------------- one database

Kind = TypeVar("Kind", HashValue, ListValue, SetValue, SortedSetValue, StreamValue)

_PLAIN: Final = frozenset((bytes, NoneType))


class Watcher(Protocol):
    """A session that watches a key."""

    dirty_watch: bool
    """Set to True when the key changes."""


class Database:
    """One of the numbered databases, from 0."""

    def __init__(self, keyspace: Keyspace, number: int) -> None:
        self.keyspace = keyspace
        self.number = number
        self.values: dict[bytes, Value] = {}
        self.expires: dict[bytes, int] = {}
        """Key -> its expiry, Unix ms."""
        self.watchers: dict[bytes, dict[Watcher, None]] = {}
        """Key -> sessions that watch it."""
        self.waiters: dict[bytes, dict[int, None]] = {}
        """Key -> numbers of the sessions that a blocking command on it blocks, oldest first."""

    # ------------------------------------------------------------------ reading

    def find(self, key: bytes) -> Value | None:
        """Return the value of a key, or None if there is none or it has expired."""
        value = self.values.get(key)
        if value is not None and self.expires and self.is_over(key):
            return None
        return value

    def is_over(self, key: bytes) -> bool:
        """Whether a key has expired. On the leader this removes it."""
        at_ms = self.expires.get(key)
        keyspace = self.keyspace
        if at_ms is None or at_ms > keyspace.now_ms or keyspace.applying:
            return False
        if keyspace.may_expire:
            self.expire(key)
        return True

    def string(self, key: bytes) -> bytes | None:
        """The string of a key. Raises CommandError (WRONGTYPE)."""
        value = self.find(key)
        if value is None or isinstance(value, bytes):
            return value
        raise wrong_type()

    def of_kind(self, kind: type[Kind], key: bytes) -> Kind | None:
        """The value of a key, which must be of this kind. Raises CommandError (WRONGTYPE)."""
        value = self.values.get(key)
        if value is None or (value.__class__ is kind and key not in self.expires):
            return value
        # The slow path, for keys that may have expired.
        value = self.find(key)
        if value is None or value.__class__ is kind:
            return value
        raise wrong_type()

    def of_kind_or_new(self, kind: type[Kind], key: bytes) -> Kind:
        """The same, with a new empty value if there is none. The caller fills it, or calls
        `remove_if_empty`.
        """
        value = self.values.get(key)
        if value.__class__ is kind and key not in self.expires:
            return value
        value = self.find(key)
        if value is None:
            made = self.values[key] = kind()
            return made
        if value.__class__ is kind:
            return value
        raise wrong_type()

    def strings(self, keys: list[bytes]) -> list[bytes | None] | None:
        """Return the values of keys, if each is None or `bytes` and no key expires; else None."""
        values: list[Any] = list(map(self.values.get, keys))
        plain = _PLAIN.issuperset(map(type, values))
        return values if plain and self._none_expires(keys) else None

    def _none_expires(self, keys: list[bytes]) -> bool:
        """Whether none of these keys expires."""
        return not self.expires or self.expires.keys().isdisjoint(keys)

    # ------------------------------------------------------------------ changing

    def put_strings(self, keys: list[bytes], strings: list[bytes]) -> bool:
        """Set keys to strings and count the changes.

        Returns False and does nothing if this fast path does not apply: keys expire, collections
        must be freed, or sessions must be notified.
        """
        values = self.values
        if (
            self.watchers
            or self.waiters
            or not _PLAIN.issuperset(map(type, map(values.get, keys)))
            or not self._none_expires(keys)
        ):
            return False
        values.update(zip(keys, strings, strict=True))
        self.keyspace.dirty += len(keys)
        return True

    def put(self, key: bytes, value: Value, *, keep_ttl: bool = False) -> None:
        """Set the value of a key. Call `changed` after it."""
        old = self.values.get(key)
        if old is not None and old is not value and old.__class__ is not bytes:
            self.keyspace.discard(old)
        self.values[key] = value
        if not keep_ttl and self.expires:
            self.expires.pop(key, None)

    def remove(self, key: bytes) -> bool:
        """Remove a key; returns whether it existed (`find` it first if it may have expired)."""
        value = self.values.pop(key, None)
        if value is None:
            return False
        if self.expires:
            self.expires.pop(key, None)
        self.keyspace.discard(value)
        return True

    def take(self, key: bytes) -> tuple[Value, int | None] | None:
        """Remove a key and return its value and expiry."""
        value = self.values.pop(key, None)
        return None if value is None else (value, self.expires.pop(key, None))

    def remove_if_empty(self, key: bytes) -> None:
        """A collection without elements does not exist."""
        value = self.values.get(key)
        if value is not None and not value and value.__class__ not in (bytes, StreamValue):
            self.remove(key)

    def set_expiry(self, key: bytes, at_ms: int | None) -> None:
        """Set the expiry of an existing key; None = never."""
        if at_ms is None:
            self.expires.pop(key, None)
            return
        self.expires[key] = at_ms
        if self.keyspace.may_expire:
            expiry = self.keyspace.expiry
            expiry.add(self.number, key, at_ms)
            if expiry.hints > expiry.hints_max:
                self.keyspace.thin_out_expiry()

    def expire(self, key: bytes) -> None:
        """Remove an expired key and log a DEL."""
        self.remove(key)
        keyspace = self.keyspace
        keyspace.expired_keys += 1
        keyspace.log(self.number, [b"DEL", key])
        self.notify(key)

    def changed(self, key: bytes, times: int = 1) -> None:
        """Count the change of a key, and notify sessions that watch it or wait for it."""
        self.keyspace.dirty += times
        if self.watchers or self.waiters:
            self.notify(key)

    def notify(self, key: bytes) -> None:
        """Notify sessions that watch a key or wait for it."""
        for session in self.watchers.get(key, ()):
            session.dirty_watch = True
        if key in self.waiters:
            self.keyspace.ready[self.number, key] = None

    def clear(self) -> int:
        """Remove all keys; returns their number."""
        values = self.values
        for key in [*self.watchers, *self.waiters]:
            if key in values:
                self.notify(key)
        self.values, self.expires = {}, {}
        self.keyspace.discard(values)
        return len(values)


# -------------------------------------------------------------------------------- all databases

DATABASES: Final = 16
_FREE_AT_ONCE: Final = 256
"""A removed collection with more elements is freed later, in slices."""
_LEAVES: Final = frozenset((bytes, int, NoneType))
"""Classes of elements that have none of their own: strings, times, and what a hint leads to."""
_ENTRY_COST: Final = 4
"""Cost of removing an entry of a sorted set, relative to an element of other kinds."""


class Keyspace:
    """All data that Redis clients see. Single-threaded; time and randomness are passed in."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.databases = [Database(self, number) for number in range(DATABASES)]
        self.expiry = ExpiryWheel()
        self._to_line_up: list[tuple[Database, list[bytes]]] = []
        """Keys of each database whose expiry hints are still to be made."""
        self.libraries: dict[bytes, bytes] = {}
        """Function libraries: name -> source. They are compiled when one is first called."""
        self.now_ms = 0
        """The time that commands see; the host sets it before each turn."""
        self.may_expire = True
        """Whether expired keys are removed; False on a follower. Set by `begin_expiring` and
        `stop_expiring`."""
        self.applying = False
        """Effects are being applied: nothing expires and nothing is logged."""
        self.condemned = False
        """A command failed half-way: memory may have changes that the log does not have."""
        self.dirty = 0
        """Number of changes so far."""
        self.expired_keys = 0
        self.ready: dict[DatabaseKey, None] = {}
        """Keys with blocked commands that changed."""
        self.effects: list[list[bytes]] = []
        """Effects that are not in the log yet."""
        self._effects_database = 0
        self.garbage: list[Any] = []
        """Large removed values, to be freed in slices."""
        self.apply_commands: Callable[[Iterable[list[bytes]]], None] | None = None
        """Set by the first call of `apply_effects`."""

    # ------------------------------------------------------------------ effects

    def log(self, database: int, argv: list[bytes]) -> None:
        """Record an effect."""
        if self.applying:
            return
        if database != self._effects_database:
            self._effects_database = database
            self.effects.append([b"SELECT", b"%d" % database])
        self.effects.append(argv)

    def log_many(self, database: int, argvs: list[list[bytes]]) -> None:
        """Record effects of one database."""
        if argvs:
            self.log(database, argvs[0])
        if not self.applying:
            self.effects += argvs[1:]

    def take_effects(self) -> list[list[bytes]]:
        """Remove and return the effects for one frame; they begin in database 0."""
        effects, self.effects = self.effects, []
        self._effects_database = 0
        return effects

    def condemn(self) -> None:
        """Log nothing from now on: a keyspace that is rebuilt from the log replaces this one."""
        self.condemned = self.applying = True
        self.effects = []
        self.stop_expiring()

    @property
    def is_ahead(self) -> bool:
        """Whether memory has, or may have, changes that are not in the log."""
        return self.condemned or bool(self.effects)

    # ------------------------------------------------------------------ expiry

    def next_expiry_ms(self) -> int | None:
        """Return the time of the next call of `expire_due`, or None."""
        if not self.may_expire:
            return None
        return 0 if self._to_line_up else self.expiry.next_ms()

    def begin_expiring(self) -> None:
        """Remove expired keys from now on. `expire_due` makes the missing hints in slices."""
        self.may_expire = True
        self._line_up_expiry()

    def stop_expiring(self) -> None:
        """Remove no expired keys from now on: the leader does."""
        self.may_expire = False
        self.discard(self.expiry.buckets)
        self.expiry = ExpiryWheel()
        self._to_line_up = []

    def expire_due(self, now_ms: int, most: int = 1_000) -> int:
        """Remove up to `most` expired keys; returns their number."""
        if self._to_line_up:
            self._line_up_slice(4 * most)
        self.now_ms = max(self.now_ms, now_ms)
        due = self.expiry.due(now_ms, most, self._expires_at)
        # A key whose expiry was set to the same time twice is listed twice.
        for number, key in dict.fromkeys(due):
            self.databases[number].expire(key)
        self.thin_out_expiry()
        return len(due)

    def _line_up_slice(self, most: int) -> None:
        while self._to_line_up and most > 0:
            database, keys = self._to_line_up[-1]
            first = max(len(keys) - most, 0)
            most -= len(keys) - first
            expires, add = database.expires, self.expiry.add
            for key in keys[first:]:
                at_ms = expires.get(key)
                if at_ms is not None:
                    add(database.number, key, at_ms)
            del keys[first:]
            if not keys:
                self._to_line_up.pop()

    def _line_up_expiry(self) -> None:
        """Have `expire_due` rebuild the hints of the wheel in slices."""
        self.discard(self.expiry.buckets)
        self.expiry = ExpiryWheel()
        self._to_line_up = []
        if self.may_expire:
            self._to_line_up = [
                (database, list(database.expires))
                for database in self.databases
                if database.expires
            ]

    def thin_out_expiry(self) -> None:
        """Rebuild the hints of the wheel if most of them are stale."""
        if self.expiry.crowded(sum(len(database.expires) for database in self.databases)):
            self._line_up_expiry()

    def _expires_at(self, database_key: DatabaseKey) -> int | None:
        return self.databases[database_key[0]].expires.get(database_key[1])

    # ------------------------------------------------------------------ freeing

    def discard(self, value: Value | dict[Any, Any]) -> None:
        """Free a removed value, or a table of values, of times or of expiry hints.

        Freeing a million elements at once would block all clients.
        """
        if value.__class__ in _LEAVES:
            return
        if len(value) > _FREE_AT_ONCE:
            self.garbage.append(value)
        elif value.__class__ is dict:
            for element in value.values():
                self.discard(element)

    def inherit(self, dropped: Keyspace) -> None:
        """Free the values of a keyspace that is no longer used, in slices."""
        self.garbage += dropped.garbage
        # Nothing may refer to it any more that it refers to; see `EngineState.inherit`.
        dropped.apply_commands = None
        for database in dropped.databases:
            database.keyspace = self
            self.discard(database.values)
            self.discard(database.expires)

    def free_slice(self, most: int = 20_000) -> bool:
        """Free up to `most` elements of removed values; returns whether more are left."""
        while self.garbage and most > 0:
            value = self.garbage[-1]
            if isinstance(value, dict):
                while value and most > 0:
                    element = value.popitem()[1]
                    most -= 1
                    if element.__class__ in _LEAVES:
                        continue
                    if len(element) > _FREE_AT_ONCE:
                        self.garbage.append(element)
                        break
                    most -= len(element)
                if value:
                    continue
                self.garbage.remove(value)
            elif isinstance(value, StreamValue):
                while value.nodes and most > 0:
                    most -= value.pop()
                if not value.nodes:
                    self.garbage.pop()
            elif isinstance(value, SortedSetValue):
                while value.scores and most > 0:
                    value.order.pop(greatest=True)
                    value.scores.popitem()
                    most -= _ENTRY_COST
                if not value.scores:
                    self.garbage.pop()
            elif isinstance(value, set) or hasattr(value, "popleft"):
                while value and most > 0:
                    value.pop()
                    most -= 1
                if not value:
                    self.garbage.pop()
            else:
                most -= len(value)
                self.garbage.pop()
        return bool(self.garbage)

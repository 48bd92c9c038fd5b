"""One database: keys, their values, and their expiry.

Commands use the methods here, which handle expiry, watchers and waiters. Only lengths and read-only
access may use `values` directly. After a change a command calls `changed`, once per key.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, Final, Protocol, TypeVar

from delaylog.broker.keyspace.errors import wrong_type
from delaylog.broker.keyspace.expiry import DatabaseKey, ExpiryWheel
from delaylog.broker.keyspace.values.kinds import HashValue, ListValue, SetValue, Value
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue

Kind = TypeVar("Kind", HashValue, ListValue, SetValue, SortedSetValue, StreamValue)

_PLAIN: Final = frozenset((bytes, NoneType))


class Watcher(Protocol):
    """A session that watches a key."""

    dirty_watch: bool
    """Set to True when the key changes."""


class Owner(Protocol):
    """The keyspace, as its databases see it."""

    databases: list[Database]
    now_ms: int
    may_expire: bool
    applying: bool
    dirty: int
    expired_keys: int
    expiry: ExpiryWheel
    ready: dict[DatabaseKey, None]

    def log(self, database: int, argv: list[bytes], /) -> None:
        """Record an effect for the log."""

    def discard(self, value: Value | dict[Any, Any], /) -> None:
        """Free a removed value, in slices if it is large."""

    def thin_out_expiry(self) -> None:
        """Rebuild the expiry hints if most of them are stale."""


class Database:
    """One of the numbered databases, from 0."""

    def __init__(self, keyspace: Owner, number: int) -> None:
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

"""One database: keys, what they hold, and when they end.

Commands go through the methods here, which see to expiry, watchers and waiters; only lengths and
read-only looks may use `values` itself. A change is told by `changed`, once per key, after it.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, Final, Protocol, TypeVar

from delaylog.broker.keyspace.errors import wrong_type
from delaylog.broker.keyspace.expiry import ExpiryWheel, Place
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

    now_ms: int
    may_expire: bool
    applying: bool
    dirty: int
    expired_keys: int
    expiry: ExpiryWheel
    ready: dict[Place, None]

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
        """Key -> when it ends, Unix ms."""
        self.watchers: dict[bytes, dict[Watcher, None]] = {}
        """Key -> sessions that watch it."""
        self.waiters: dict[bytes, dict[int, None]] = {}
        """Key -> numbers of the sessions that a blocking command on it blocks, oldest first."""

    # ------------------------------------------------------------------ looking

    def find(self, key: bytes) -> Value | None:
        """What a key holds, or None; a key whose time has come holds nothing."""
        value = self.values.get(key)
        if value is not None and self.expires and self.is_over(key):
            return None
        return value

    def is_over(self, key: bytes) -> bool:
        """Whether a key's time has come; where effects may be made it is removed by that."""
        at_ms = self.expires.get(key)
        keyspace = self.keyspace
        if at_ms is None or at_ms > keyspace.now_ms or keyspace.applying:
            return False
        if keyspace.may_expire:
            self.expire(key)
        return True

    def string(self, key: bytes) -> bytes | bytearray | None:
        """The string of a key. Raises CommandError (WRONGTYPE)."""
        value = self.find(key)
        if value is None or value.__class__ is bytes or value.__class__ is bytearray:
            return value
        raise wrong_type()

    def of_kind(self, kind: type[Kind], key: bytes) -> Kind | None:
        """The value of a key, which must be of this kind. Raises CommandError (WRONGTYPE)."""
        value = self.values.get(key)
        if value is None or (value.__class__ is kind and key not in self.expires):
            return value
        # The long way, for what may have ended.
        value = self.find(key)
        if value is None or value.__class__ is kind:
            return value
        raise wrong_type()

    def of_kind_or_new(self, kind: type[Kind], key: bytes) -> Kind:
        """The same; a new, empty value is put there if there is none. Put something into it, or
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
        """What keys hold if that is nothing or strings as they were given, and they do not end by
        themselves; else None.
        """
        values: list[Any] = list(map(self.values.get, keys))
        plain = _PLAIN.issuperset(map(type, values))
        return values if plain and self._stay(keys) else None

    def _stay(self, keys: list[bytes]) -> bool:
        """Whether none of these keys ends by itself."""
        return not self.expires or self.expires.keys().isdisjoint(keys)

    # ------------------------------------------------------------------ changing

    def put_strings(self, keys: list[bytes], strings: list[bytes]) -> bool:
        """Give keys strings, and count that; False, and nothing was done, if there is more to it:
        keys that end, collections to be freed, or others to be told.
        """
        values = self.values
        if (
            self.watchers
            or self.waiters
            or not _PLAIN.issuperset(map(type, map(values.get, keys)))
            or not self._stay(keys)
        ):
            return False
        values.update(zip(keys, strings, strict=True))
        self.keyspace.dirty += len(keys)
        return True

    def put(self, key: bytes, value: Value, *, keep_ttl: bool = False) -> None:
        """Give a key a value, whatever it held. Tell `changed` after it."""
        held = self.values.get(key)
        if held is not None and held is not value and held.__class__ is not bytes:
            self.keyspace.discard(held)
        self.values[key] = value
        if not keep_ttl and self.expires:
            self.expires.pop(key, None)

    def remove(self, key: bytes) -> bool:
        """Remove a key; True if it was there (`find` it first, if its time may have come)."""
        value = self.values.pop(key, None)
        if value is None:
            return False
        if self.expires:
            self.expires.pop(key, None)
        self.keyspace.discard(value)
        return True

    def take(self, key: bytes) -> tuple[Value, int | None] | None:
        """Remove a key, and hand over what it held and when it would have ended."""
        value = self.values.pop(key, None)
        return None if value is None else (value, self.expires.pop(key, None))

    def remove_if_empty(self, key: bytes) -> None:
        """A collection without elements does not exist."""
        value = self.values.get(key)
        if value is not None and not value and value.__class__ not in (bytes, StreamValue):
            self.remove(key)

    def set_expiry(self, key: bytes, at_ms: int | None) -> None:
        """Let a key that exists end at a time, or never."""
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
        """Its time has come: remove it, with a DEL as its effect."""
        self.remove(key)
        keyspace = self.keyspace
        keyspace.expired_keys += 1
        keyspace.log(self.number, [b"DEL", key])
        self.tell(key)

    def changed(self, key: bytes, times: int = 1) -> None:
        """A key was changed: count it, tell who watches it and who waits for it."""
        self.keyspace.dirty += times
        if self.watchers or self.waiters:
            self.tell(key)

    def tell(self, key: bytes) -> None:
        """Tell who watches a key, and who waits for it."""
        for session in self.watchers.get(key, ()):
            session.dirty_watch = True
        if key in self.waiters:
            self.keyspace.ready[self.number, key] = None

    def clear(self) -> int:
        """Remove everything; returns how many keys there were."""
        values = self.values
        for key in [*self.watchers, *self.waiters]:
            if key in values:
                self.tell(key)
        self.values, self.expires = {}, {}
        self.keyspace.discard(values)
        return len(values)

"""The keyspace: all databases, and the effects that are to be logged.

Commands change values at once and leave *effects*: commands with the same outcome whenever they are
applied (times are absolute, random choices explicit). The host takes the effects of a turn for one
KEYSPACE frame; recovery and followers apply them by the same functions (`applying.py`). Only the
leader removes an expired key, with a DEL as its effect, so applying reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from delaylog.broker.keyspace.database import Database
from delaylog.broker.keyspace.expiry import DatabaseKey, ExpiryWheel
from delaylog.broker.keyspace.values.kinds import Value
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue

DATABASES: Final = 16
_FREE_AT_ONCE: Final = 256
"""A removed collection with more elements is freed later, in slices."""
_ENTRY_COST: Final = 4
"""Cost of removing an entry of a sorted set, relative to an element of other kinds."""


class Keyspace:
    """All data that Redis clients see. Single-threaded; time and randomness are passed in."""

    def __init__(self, random: Random, databases: int = DATABASES) -> None:
        self.random = random
        self.databases = [Database(self, number) for number in range(databases)]
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
        """Free a removed value. Freeing a million elements at once would block all clients."""
        if value.__class__ is not bytes and len(value) > _FREE_AT_ONCE:
            self.garbage.append(value)

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
                    if element.__class__ is not bytes and len(element) > _FREE_AT_ONCE:
                        self.garbage.append(element)
                        break
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

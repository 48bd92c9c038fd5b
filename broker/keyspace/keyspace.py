"""The keyspace: all databases, what changes them, and what of that is to be logged.

Commands change values at once and leave *effects*: commands that bring about the same whenever
they are applied (times absolute, choices made). The host takes the effects of a turn for one
KEYSPACE frame; recovery and followers `apply` them by the same functions. A key whose time has
come is removed by the leader only, with a DEL as its effect, so applying looks at no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from delaylog.broker.keyspace.database import Database
from delaylog.broker.keyspace.expiry import ExpiryWheel, Place
from delaylog.broker.keyspace.values.kinds import Value
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue
from delaylog.broker.keyspace.values.stream import StreamValue

DATABASES: Final = 16
_FREE_AT_ONCE: Final = 256
"""A collection of so many elements is taken apart later, in slices."""
_ENTRY_COST: Final = 4
"""What it takes to take an entry out of a sorted set, compared with an element of others."""


class Keyspace:
    """Holds what Redis clients see. One thread; time and randomness come in."""

    def __init__(self, random: Random, databases: int = DATABASES) -> None:
        self.random = random
        self.databases = [Database(self, number) for number in range(databases)]
        self.expiry = ExpiryWheel()
        self._to_line_up: list[tuple[Database, list[bytes]]] = []
        """Keys that may expire and are not lined up yet, of each database."""
        self.libraries: dict[bytes, bytes] = {}
        """Function libraries: name -> source. They are compiled when one is first called."""
        self.now_ms = 0
        """The time commands see; the host sets it before each turn."""
        self.may_expire = True
        """Whether keys are removed when their time has come; not on a follower. Changed by
        `begin_expiring` and `stop_expiring`."""
        self.applying = False
        """Effects are being applied: no clock counts and nothing is logged."""
        self.condemned = False
        """A command failed half-way: memory may hold what the log does not."""
        self.dirty = 0
        """Changes so far."""
        self.expired_keys = 0
        self.ready: dict[Place, None] = {}
        """Keys that changed while somebody waited for them."""
        self.effects: list[list[bytes]] = []
        """What is not in the log yet."""
        self._effects_database = 0
        self.garbage: list[Any] = []
        """Large values that were removed, to be taken apart in slices."""
        self.apply_commands: Callable[[Iterable[list[bytes]]], None] | None = None
        """Set by the first call of `apply_effects`."""

    # ------------------------------------------------------------------ effects

    def log(self, database: int, argv: list[bytes]) -> None:
        """Note an effect."""
        if self.applying:
            return
        if database != self._effects_database:
            self._effects_database = database
            self.effects.append([b"SELECT", b"%d" % database])
        self.effects.append(argv)

    def log_many(self, database: int, argvs: list[list[bytes]]) -> None:
        """Note effects of one database."""
        if argvs:
            self.log(database, argvs[0])
        if not self.applying:
            self.effects += argvs[1:]

    def take_effects(self) -> list[list[bytes]]:
        """The effects since the last call, for one frame; they begin in database 0."""
        effects, self.effects = self.effects, []
        self._effects_database = 0
        return effects

    def condemn(self) -> None:
        """Nothing of this is logged from now on: one made from the log takes its place."""
        self.condemned = self.applying = True
        self.effects = []
        self.stop_expiring()

    @property
    def is_ahead(self) -> bool:
        """Whether it holds, or may hold, what is not in the log."""
        return self.condemned or bool(self.effects)

    # ------------------------------------------------------------------ expiry

    def next_expiry_ms(self) -> int | None:
        """When `expire_due` has something to look at."""
        if not self.may_expire:
            return None
        return 0 if self._to_line_up else self.expiry.next_ms()

    def begin_expiring(self) -> None:
        """From now on keys are removed when their time has come.

        No hints were kept until now; `expire_due` makes them in slices.
        """
        self.may_expire = True
        self.line_up_expiry()

    def stop_expiring(self) -> None:
        """From now on somebody else says which keys have ended."""
        self.may_expire = False
        self.discard(self.expiry.buckets)
        self.expiry = ExpiryWheel()
        self._to_line_up = []

    def expire_due(self, now_ms: int, most: int = 1_000) -> int:
        """Remove up to `most` keys whose time has come; returns how many."""
        if self._to_line_up:
            self._line_up_slice(4 * most)
        self.now_ms = max(self.now_ms, now_ms)
        places = self.expiry.due(now_ms, most, self._expires_at)
        # A key that was given the same time once more stands there twice.
        for number, key in dict.fromkeys(places):
            self.databases[number].expire(key)
        self.thin_out_expiry()
        return len(places)

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

    def line_up_expiry(self) -> None:
        """Make the hints of the wheel anew, in slices, by `expire_due`."""
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
        """Make the hints of the wheel anew if most of them lead nowhere."""
        if self.expiry.crowded(sum(len(database.expires) for database in self.databases)):
            self.line_up_expiry()

    def _expires_at(self, place: Place) -> int | None:
        return self.databases[place[0]].expires.get(place[1])

    # ------------------------------------------------------------------ what was removed

    def discard(self, value: Value | dict[Any, Any]) -> None:
        """A value has gone; freeing a million elements at once would hold everybody up."""
        if value.__class__ is not bytes and len(value) > _FREE_AT_ONCE:
            self.garbage.append(value)

    def inherit(self, dropped: Keyspace) -> None:
        """Take apart, in slices, what a keyspace held that nobody uses any more."""
        self.garbage += dropped.garbage
        for database in dropped.databases:
            self.discard(database.values)
            self.discard(database.expires)

    def free_slice(self, most: int = 20_000) -> bool:
        """Take removed values apart, so many elements; True if there is more."""
        while self.garbage and most > 0:
            value = self.garbage[-1]
            if isinstance(value, dict):
                while value and most > 0:
                    held = value.popitem()[1]
                    most -= 1
                    if held.__class__ is not bytes and len(held) > _FREE_AT_ONCE:
                        self.garbage.append(held)
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

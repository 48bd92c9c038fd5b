"""Shards: several brokers or clusters that one client treats as one.

A message with a key or an id has a home shard and is never sent to another one, since ordering by
key and merging by id work within one broker only. Other messages go round robin, to shards of the
client's zone first. This module sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol
from zlib import crc32

from delaylog.client.wire.checks import check_text, check_whole
from delaylog.client.wire.endpoints import checked_url

SERVER_MADE = "~"
"""Prefix of the ids that brokers generate. They are unique within one broker only."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One broker at `url`, or one cluster with further `members`.

    `name` identifies the shard in messages and errors; it defaults to the address. `zone` is its
    location.
    """

    url: str
    name: str = ""
    zone: str | None = None
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_text("zone", self.zone)
        # First: what follows a comma in the query of an address looks like a member.
        object.__setattr__(self, "url", checked_url(self.url))
        members = (self.members,) if isinstance(self.members, str) else tuple(self.members)
        object.__setattr__(self, "members", tuple(map(checked_url, members)))
        object.__setattr__(self, "name", self.name or self.url)

    @classmethod
    def of(cls, endpoint: str | Shard) -> Shard:
        """A Shard as it is, or one from the comma-separated addresses of a cluster."""
        if isinstance(endpoint, Shard):
            return endpoint
        if not isinstance(endpoint, str):
            raise TypeError(f"an endpoint is an address or a Shard, not {type(endpoint).__name__}")
        first, *members = (part.strip() for part in endpoint.split(","))
        return cls(first, members=tuple(members))


class Sharding(Protocol):
    """Assigns messages to home shards."""

    def home(self, id: str | None, key: str | None, shards: int, /) -> int | None:
        """The index of the home among `shards`, or None for any shard."""


class ByKey:
    """CRC32 of the key, otherwise of the id, modulo the number of shards (the default)."""

    def home(self, id: str | None, key: str | None, shards: int, /) -> int | None:
        """The index of the home; None without key and id."""
        text = key or id
        return crc32(text.encode()) % shards if text else None

    def __repr__(self) -> str:
        return "ByKey()"


class RoundRobin:
    """Any shard for any message. Ids and keys then apply within each shard only."""

    def home(self, _id: str | None, _key: str | None, _shards: int, /) -> int | None:
        """None."""
        return None

    def __repr__(self) -> str:
        return "RoundRobin()"


class BySlot:
    """By slot: the CRC32 of the key, otherwise of the id, modulo `slots`, a power of two.

    Each shard has a contiguous range of slots, all of equal size up to one slot. With twice the
    number of shards, each range is split in two.
    """

    def __init__(self, slots: int) -> None:
        check_whole("slots", slots)
        if slots < 1 or slots & (slots - 1):
            raise ValueError(f"slots are a power of two, not {slots}")
        self.slots = slots

    def slot(self, text: str) -> int:
        """The slot of a key or id."""
        return crc32(text.encode()) % self.slots

    def home(self, id: str | None, key: str | None, shards: int, /) -> int | None:
        """The index of the home; None without key and id."""
        if shards > self.slots:
            raise ValueError(f"{shards} shards need as many slots; there are {self.slots}")
        text = key or id
        return self.slot(text) * shards // self.slots if text else None

    def __repr__(self) -> str:
        return f"BySlot({self.slots})"


class Topology:
    """The shards of a client, and which of them may have a message."""

    def __init__(
        self, endpoints: Iterable[str | Shard], sharding: Sharding, zone: str | None
    ) -> None:
        self.shards = tuple(map(Shard.of, endpoints))
        if not self.shards:
            raise ValueError("give the address of a broker, such as http://127.0.0.1:8711")
        self._at = {shard.name: at for at, shard in enumerate(self.shards)}
        if len(self._at) < len(self.shards):
            raise ValueError("two shards have one name; several addresses of one cluster are one")
        if not callable(getattr(sharding, "home", None)) or isinstance(sharding, type):
            raise TypeError(f"sharding is ByKey(), RoundRobin() or BySlot(slots), not {sharding!r}")
        self.sharding = sharding
        sharding.home(None, None, len(self.shards))
        here = [at for at, shard in enumerate(self.shards) if shard.zone == zone]
        self._near = here if zone is not None else list(range(len(self.shards)))
        self._far = [at for at in range(len(self.shards)) if at not in self._near]
        self._turn = count()

    def __len__(self) -> int:
        return len(self.shards)

    def at(self, name: str) -> int:
        """The index of a shard. ValueError for an unknown name."""
        try:
            return self._at[name]
        except KeyError:
            known = ", ".join(self._at)
            raise ValueError(f"there is no shard {name!r}; there are {known}") from None

    def home(self, id: str | None = None, key: str | None = None) -> int | None:
        """The index of the home of a message; None if any shard may have it."""
        if len(self.shards) == 1:
            return 0
        return self.sharding.home(id, key, len(self.shards))

    def order(self) -> Sequence[int]:
        """All shards, those of the client's zone first, rotated on each call."""
        turn = next(self._turn)
        return _turned(self._near, turn) + _turned(self._far, turn)

    def one(self, shard: str | None, what: str) -> int:
        """The index of the named or only shard. ValueError if a name is required."""
        if shard is not None:
            return self.at(shard)
        if len(self.shards) > 1:
            raise ValueError(f"{what} is about one broker and there are several: give shard=")
        return 0

    def of_id(self, id: str, shard: str | None) -> Sequence[int]:
        """The shards that may have a message with this id, the likeliest first.

        All shards are returned, since a message with a key is on the key's home shard. ValueError
        for a generated id without `shard`.
        """
        if shard is not None:
            return (self.at(shard),)
        if len(self.shards) == 1:
            return (0,)
        if id.startswith(SERVER_MADE):
            raise ValueError(
                f"the id {id} was made by one of {len(self.shards)} brokers and others may have it "
                "too: give shard= (Sent.shard and Message.shard say it)"
            )
        home = self.home(id)
        others = [at for at in self.order() if at != home]
        return others if home is None else [home, *others]

    def rounds(self, ids: Sequence[str], shard: str | None) -> list[tuple[int, list[int]]]:
        """(shard, indexes of ids) in the order to ask: for each id its home, then all others.

        The caller skips ids that were already found. TypeError for a single str.
        """
        if isinstance(ids, str):
            raise TypeError(f"ids are a list of texts, not one: use [{ids!r}]")
        everyone = list(range(len(ids)))
        if shard is not None or len(self.shards) == 1:
            return [(0 if shard is None else self.at(shard), everyone)]
        likely: dict[int, list[int]] = {}
        for place, text in enumerate(ids):
            likely.setdefault(self.of_id(text, None)[0], []).append(place)
        first = list(likely.items())
        then = []
        for at in range(len(self.shards)):
            asked = set(likely.get(at, ()))
            then.append((at, [place for place in everyone if place not in asked]))
        return first + then


def _turned(places: Sequence[int], turn: int) -> list[int]:
    if not places:
        return []
    first = turn % len(places)
    return [*places[first:], *places[:first]]

"""Shards: several brokers, or clusters, that one client takes as one.

The one rule: a message that has a home (by its key, else its id) is never sent anywhere else, since
order and merging depend on all of its kind being in one place. What has no home goes round robin,
to shards of the client's own zone first. Nothing is asked or sent here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol
from urllib.parse import urlsplit
from zlib import crc32

from delaylog.client.wire.checks import check_text, check_whole

EXAMPLE = "http://127.0.0.1:8711"
SERVER_MADE = "~"
"""How ids begin that a broker made; they are unique in that broker only."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One broker at `url`, or one cluster whose other `members` are known too.

    `name` is what messages and errors say (the address unless it is given), `zone` where it stands.
    """

    url: str
    name: str = ""
    zone: str | None = None
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_text("zone", self.zone)
        members = (self.members,) if isinstance(self.members, str) else tuple(self.members)
        object.__setattr__(self, "members", tuple(map(checked_url, members)))
        object.__setattr__(self, "url", checked_url(self.url))
        object.__setattr__(self, "name", self.name or self.url)

    @classmethod
    def of(cls, endpoint: str | Shard) -> Shard:
        """A shard as it is, or one from addresses with commas between: members of one cluster."""
        if isinstance(endpoint, Shard):
            return endpoint
        if not isinstance(endpoint, str):
            raise TypeError(f"an endpoint is an address or a Shard, not {type(endpoint).__name__}")
        first, *members = (part.strip() for part in endpoint.split(","))
        return cls(first, members=tuple(members))


def checked_url(url: str) -> str:
    """The address without a slash at its end. ValueError where it is none of http or https.

    It may have a path, under which a proxy shows the broker.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"not an http address: {url!r}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"not an http address: {url!r}; such as {EXAMPLE}")
    if "@" in parts.netloc:
        raise ValueError("an address holds no user or password: give the token as token=")
    if parts.path.rstrip("/").endswith("/v1"):
        raise ValueError(f"an address of a broker ends before /v1: {url!r}; such as {EXAMPLE}")
    if parts.query or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"an address of a broker has no query and no spaces: {url!r}")
    return url.rstrip("/")


class Sharding(Protocol):
    """Which shard is the home of a message."""

    def home(self, id: str | None, key: str | None, shards: int, /) -> int | None:
        """The index of its shard among `shards`, None where any will do."""


class ByKey:
    """By the CRC32 of the key, else of the id, modulo the number of shards (the default)."""

    def home(self, id: str | None, key: str | None, shards: int, /) -> int | None:
        """The index of its shard, None for a message with neither key nor id."""
        text = key or id
        return crc32(text.encode()) % shards if text else None

    def __repr__(self) -> str:
        return "ByKey()"


class RoundRobin:
    """Any shard for any message: ids and keys then hold for each shard by itself."""

    def home(self, _id: str | None, _key: str | None, _shards: int, /) -> int | None:
        """None."""
        return None

    def __repr__(self) -> str:
        return "RoundRobin()"


class BySlot:
    """By slots: the CRC32 of the key, else of the id, modulo `slots`, a power of two.

    Shards hold ranges of slots of one length, or one more: with twice the shards, each range is
    cut in two.
    """

    def __init__(self, slots: int) -> None:
        check_whole("slots", slots)
        if slots < 1 or slots & (slots - 1):
            raise ValueError(f"slots are a power of two, not {slots}")
        self.slots = slots

    def slot(self, text: str) -> int:
        """The slot of a key or an id."""
        return crc32(text.encode()) % self.slots

    def home(self, id: str | None, key: str | None, shards: int, /) -> int | None:
        """The index of its shard, None for a message with neither key nor id."""
        if shards > self.slots:
            raise ValueError(f"{shards} shards need as many slots; there are {self.slots}")
        text = key or id
        return self.slot(text) * shards // self.slots if text else None

    def __repr__(self) -> str:
        return f"BySlot({self.slots})"


class Topology:
    """The shards of a client, and where things are among them."""

    def __init__(
        self, endpoints: Iterable[str | Shard], sharding: Sharding, zone: str | None
    ) -> None:
        self.shards = tuple(map(Shard.of, endpoints))
        if not self.shards:
            raise ValueError("give the address of a broker")
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
        """The index of a shard by its name. ValueError for one that is not there."""
        try:
            return self._at[name]
        except KeyError:
            known = ", ".join(self._at)
            raise ValueError(f"there is no shard {name!r}; there are {known}") from None

    def home(self, id: str | None = None, key: str | None = None) -> int | None:
        """The index of the only shard that may have such a message, None where any may."""
        if len(self.shards) == 1:
            return 0
        return self.sharding.home(id, key, len(self.shards))

    def order(self) -> Sequence[int]:
        """All shards, those of the own zone first; in each part another begins every time."""
        turn = next(self._turn)
        return _turned(self._near, turn) + _turned(self._far, turn)

    def one(self, shard: str | None, what: str) -> int:
        """The index of the named shard, or of the only one. ValueError where it has to be named."""
        if shard is not None:
            return self.at(shard)
        if len(self.shards) > 1:
            raise ValueError(f"{what} is about one broker and there are several: give shard=")
        return 0

    def of_id(self, id: str, shard: str | None) -> Sequence[int]:
        """Where a message of this id may be, the likeliest first.

        A message that has a key too may be at the key's home, so all shards are named. ValueError
        for an id that a broker made, where it is not said which broker.
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
        """Which shard to ask for which of the ids (their places), one after the other.

        Each id at its home first, then everywhere else: who asks leaves out what was found.
        TypeError for one text, whose letters are no ids.
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

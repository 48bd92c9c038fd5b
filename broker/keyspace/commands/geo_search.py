"""Places near a place: GEOSEARCH, GEORADIUS and their kin.

All members of a set are looked at, which is more work than going through the cells around a place;
without ASC or DESC they come in the order of their numbers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from delaylog.broker.keyspace import geohashes
from delaylog.broker.keyspace.commands.geo import place_reply, to_metres, to_place
from delaylog.broker.keyspace.commands.sorted_set_ranges import store
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.number_texts import score_text, to_int, to_score
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.sorted_set import SortedSetValue

_NO_MEMBER: Final = b"ERR could not decode requested zset member"
_NO_STORE: Final = b"ERR %b is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
_NO_CENTRE: Final = b"ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for %b"
_NO_SHAPE: Final = b"ERR exactly one of BYRADIUS and BYBOX can be specified for %b"
_ANY_ALONE: Final = b"ERR the ANY argument requires COUNT argument"
SEARCH, RADIUS, RADIUS_READ = "search", "radius", "radius_ro"
"""Whose options are known."""


class _Found(NamedTuple):
    metres: float
    score: float
    member: bytes


class _Query:
    """What is asked for; the options are read against the set, as Redis does."""

    def __init__(self, value: SortedSetValue | None, target: bytes | None) -> None:
        self.value = value
        self.target = target
        self.centre: tuple[float, float] | None = None
        self.size: tuple[float, ...] = ()
        """A radius, or width and height, in metres."""
        self.unit = 1.0
        self.flags: set[bytes] = set()
        self.order = b""
        self.count = 0

    def at_member(self, member: bytes) -> None:
        """The centre is where a member is. Raises CommandError."""
        self.centre = (0.0, 0.0)
        if self.value is not None:
            score = self.value.scores.get(member)
            if score is None:
                raise CommandError(_NO_MEMBER)
            self.centre = geohashes.decode(score)

    def within(self, *words: bytes) -> None:
        """A radius, or width and height, and their unit. Raises CommandError."""
        names = (b"radius",) if len(words) == 2 else (b"width", b"height")
        size = [
            to_score(word, b"ERR need numeric " + name)
            for word, name in zip(words, names, strict=False)
        ]
        if min(size) < 0:
            what = b"radius" if len(size) == 1 else b"height or width"
            raise CommandError(b"ERR %b cannot be negative" % what)
        self.unit = to_metres(words[-1])
        self.size = tuple(length * self.unit for length in size)

    def read(self, words: Args, kind: str) -> None:
        """The options. Raises CommandError."""
        at = 0
        while at < len(words):
            at += self._option(words[at].lower(), words[at + 1 :], kind)

    def _option(self, option: bytes, rest: Args, kind: str) -> int:
        """One option; returns how many words it has."""
        if option in (b"withdist", b"withhash", b"withcoord", b"any"):
            self.flags.add(option)
            return 1
        if option in (b"asc", b"desc"):
            self.order = option
            return 1
        if option == b"count" and rest:
            self.count = to_int(rest[0])
            if self.count <= 0:
                raise CommandError(b"ERR COUNT must be > 0")
            return 2
        if kind is SEARCH:
            return self._search_option(option, rest)
        if kind is RADIUS and option in (b"store", b"storedist") and rest:
            self.target = rest[0]
            (self.flags.add if option == b"storedist" else self.flags.discard)(b"storedist")
            return 2
        raise syntax()

    def _search_option(self, option: bytes, rest: Args) -> int:
        flags = self.flags
        if option == b"frommember" and rest and b"fromlonlat" not in flags:
            self.at_member(rest[0])
            words = 2
        elif option == b"fromlonlat" and len(rest) >= 2 and b"frommember" not in flags:
            self.centre = to_place(rest[0], rest[1])
            words = 3
        elif option == b"byradius" and len(rest) >= 2 and b"bybox" not in flags:
            self.within(*rest[:2])
            words = 3
        elif option == b"bybox" and len(rest) >= 3 and b"byradius" not in flags:
            self.within(*rest[:3])
            words = 4
        elif option == b"storedist" and self.target is not None:
            words = 1
        else:
            raise syntax()
        flags.add(option)
        return words

    def check(self, word: bytes, kind: str) -> None:
        """What only all options together tell. Raises CommandError."""
        if self.target is not None and self.flags & {b"withdist", b"withhash", b"withcoord"}:
            what = b"GEOSEARCHSTORE" if kind is SEARCH else b"STORE option in GEORADIUS"
            raise CommandError(_NO_STORE % what)
        if kind is SEARCH and self.centre is None:
            raise CommandError(_NO_CENTRE % word)
        if kind is SEARCH and not self.size:
            raise CommandError(_NO_SHAPE % word)
        if b"any" in self.flags and not self.count:
            raise CommandError(_ANY_ALONE)

    def find(self) -> list[_Found]:
        """The members, in the order asked for."""
        if self.value is None:
            return []
        any_ = b"any" in self.flags
        found: list[_Found] = []
        for score, member in self.value.order:
            if not 0 <= score <= geohashes.SCORE_MAX:
                # No place, and nowhere near one.
                continue
            away = self._metres(geohashes.decode(score))
            if away is not None:
                found.append(_Found(away, score, member))
                if any_ and len(found) == self.count:
                    break
        if self.order or (self.count and not any_):
            found.sort(key=lambda one: one.metres, reverse=self.order == b"desc")
        return found[: self.count] if self.count else found

    def _metres(self, place: tuple[float, float]) -> float | None:
        """How far a place is from the centre; None: outside."""
        centre = self.centre
        assert centre is not None
        if len(self.size) == 1:
            away = geohashes.metres(centre, place)
            return away if away <= self.size[0] else None
        width, height = self.size
        if geohashes.metres((0.0, place[1]), (0.0, centre[1])) > height / 2:
            return None
        if geohashes.metres(place, (centre[0], place[1])) > width / 2:
            return None
        return geohashes.metres(centre, place)


def _answer(run: Run, query: _Query, word: bytes, kind: str) -> Reply:
    query.check(word, kind)
    found = query.find()
    if query.target is not None:
        return _store(run, query, query.target, found)
    flags = query.flags
    if not flags & {b"withdist", b"withhash", b"withcoord"}:
        return [one.member for one in found]
    out: list[Reply] = []
    for one in found:
        told: list[Reply] = [one.member]
        if b"withdist" in flags:
            told.append(b"%.4f" % (one.metres / query.unit))
        if b"withhash" in flags:
            told.append(int(one.score))
        if b"withcoord" in flags:
            told.append(place_reply(one.score))
        out.append(told)
    return out


def _store(run: Run, query: _Query, target: bytes, found: list[_Found]) -> int:
    far = b"storedist" in query.flags
    scores = {one.member: one.metres / query.unit if far else one.score for one in found}
    # Distances may differ in their last bit from machine to machine: they are logged as they are.
    run.rewrite(b"DEL", target)
    if scores:
        words = (word for member in scores for word in (score_text(scores[member]), member))
        run.also(b"ZADD", target, *words)
    return store(run, target, scores)


@command("geosearch", -7, "readonly", keys=(1, 1, 1))
def geosearch(run: Run, argv: Args) -> Reply:
    """Members near a place, in a circle or a box."""
    query = _Query(run.database.of_kind(SortedSetValue, argv[1]), None)
    query.read(argv[2:], SEARCH)
    return _answer(run, query, argv[0], SEARCH)


@command("geosearchstore", -8, "write denyoom", keys=(1, 2, 1))
def geosearchstore(run: Run, argv: Args) -> Reply:
    """The same, put into a key."""
    query = _Query(run.database.of_kind(SortedSetValue, argv[2]), argv[1])
    query.read(argv[3:], SEARCH)
    return _answer(run, query, argv[0], SEARCH)


def _around(run: Run, argv: Args, kind: str, *, member: bool) -> Reply:
    query = _Query(run.database.of_kind(SortedSetValue, argv[1]), None)
    if not member:
        query.centre = to_place(argv[2], argv[3])
        query.within(argv[4], argv[5])
    elif query.value is not None:
        query.at_member(argv[2])
        query.within(argv[3], argv[4])
    query.read(argv[5 if member else 6 :], kind)
    return _answer(run, query, argv[0], kind)


def _stored_keys(argv: Args) -> list[bytes]:
    targets = [argv[at + 1] for at in range(5, len(argv) - 1) if argv[at].lower()[:5] == b"store"]
    return [argv[1], *targets[-1:]]


@command("georadius", -6, "write denyoom movablekeys", keys=_stored_keys)
def georadius(run: Run, argv: Args) -> Reply:
    """Members around a place: key longitude latitude radius unit [options]."""
    return _around(run, argv, RADIUS, member=False)


@command("georadiusbymember", -5, "write denyoom movablekeys", keys=_stored_keys)
def georadiusbymember(run: Run, argv: Args) -> Reply:
    """Members around a member: key member radius unit [options]."""
    return _around(run, argv, RADIUS, member=True)


@command("georadius_ro", -6, "readonly", keys=(1, 1, 1))
def georadius_ro(run: Run, argv: Args) -> Reply:
    """GEORADIUS that stores nothing."""
    return _around(run, argv, RADIUS_READ, member=False)


@command("georadiusbymember_ro", -5, "readonly", keys=(1, 1, 1))
def georadiusbymember_ro(run: Run, argv: Args) -> Reply:
    """GEORADIUSBYMEMBER that stores nothing."""
    return _around(run, argv, RADIUS_READ, member=True)

"""Places in sorted sets: a place's number (see geohashes.py) is its member's score."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace import geohashes
from delaylog.broker.keyspace.commands.sorted_sets import zadd
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.number_texts import to_score
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import NO_ARRAY, Reply, WrittenDouble
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.sorted_set import SortedSetValue

_OPTIONS: Final = frozenset((b"nx", b"xx", b"ch"))
_METRES: Final = {b"m": 1.0, b"km": 1000.0, b"ft": 0.3048, b"mi": 1609.34}
_NO_UNIT: Final = b"ERR unsupported unit provided. please use M, KM, FT, MI"
_NO_PLACE: Final = b"ERR invalid longitude,latitude pair %f,%f"


@command("geoadd", -5, "write denyoom", keys=(1, 1, 1))
def geoadd(run: Run, argv: Args) -> Reply:
    """Put places in: key [NX|XX] [CH] (longitude latitude member)..."""
    first, options = 2, set()
    while first < len(argv) and (option := argv[first].lower()) in _OPTIONS:
        options.add(option)
        first += 1
    if (len(argv) - first) % 3 or {b"nx", b"xx"} <= options:
        raise syntax()
    plain = [b"ZADD", *argv[1:first]]
    for at in range(first, len(argv), 3):
        place = to_place(argv[at], argv[at + 1])
        plain += (b"%d" % geohashes.encode(*place), argv[at + 2])
    reply = zadd(run, plain)
    run.rewrite(*plain)
    return reply


def to_place(longitude: bytes, latitude: bytes) -> tuple[float, float]:
    """A place as a client gave it. Raises CommandError."""
    place = to_score(longitude), to_score(latitude)
    if abs(place[0]) > geohashes.LONGITUDE_MAX or abs(place[1]) > geohashes.LATITUDE_MAX:
        raise CommandError(_NO_PLACE % place)
    return place


def to_metres(unit: bytes) -> float:
    """How long a unit is. Raises CommandError."""
    length = _METRES.get(unit.lower())
    if length is None:
        raise CommandError(_NO_UNIT)
    return length


def _scores(run: Run, argv: Args, members: list[bytes]) -> list[float | None]:
    value = run.database.of_kind(SortedSetValue, argv[1])
    return [None if value is None else value.scores.get(member) for member in members]


@command("geopos", -2, "readonly", keys=(1, 1, 1))
def geopos(run: Run, argv: Args) -> Reply:
    """Where members are: longitude and latitude."""
    found = _scores(run, argv, argv[2:])
    return [NO_ARRAY if score is None else place_reply(score) for score in found]


def place_reply(score: float) -> Reply:
    """Longitude and latitude, with up to 17 decimals."""
    return [WrittenDouble(_decimals(part)) for part in geohashes.decode(score)]


def _decimals(value: float) -> bytes:
    shown = (b"%.17f" % value).rstrip(b"0").rstrip(b".")
    return b"0" if shown == b"-0" else shown


@command("geodist", -4, "readonly", keys=(1, 1, 1))
def geodist(run: Run, argv: Args) -> Reply:
    """How far two members are from each other: key one other [M|KM|FT|MI]."""
    if len(argv) > 5:
        raise syntax()
    unit = to_metres(argv[4]) if len(argv) == 5 else 1.0
    one, other = _scores(run, argv, argv[2:4])
    if one is None or other is None:
        return None
    return b"%.4f" % (geohashes.metres(geohashes.decode(one), geohashes.decode(other)) / unit)


@command("geohash", -2, "readonly", keys=(1, 1, 1))
def geohash(run: Run, argv: Args) -> Reply:
    """Members' places as texts of eleven characters."""
    found = _scores(run, argv, argv[2:])
    return [None if score is None else geohashes.text(score) for score in found]

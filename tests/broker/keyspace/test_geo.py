"""Geo commands answer as redis-server 7.0.15; the replies were taken from it (RESP2)."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.keyspace.executor import Executor
from delaylog.broker.keyspace.keyspace import Keyspace

NO_MEMBER = "ERR could not decode requested zset member"
SICILY = "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania"


def ask(executor: Executor, line: str) -> str:
    session = executor.connect(0)
    executor.handle(session, [line.encode().split(b" ")])
    return b"".join(session.out).decode().replace("\r\n", " ").strip()


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("ZSCORE g Palermo", "$16 3479099956230698"),
        ("GEOPOS g Palermo no", "*2 *2 $20 13.36138933897018433 $20 38.11555639549629859 *-1"),
        ("GEODIST g Palermo Catania", "$11 166274.1516"),
        ("GEODIST g Palermo Catania KM", "$8 166.2742"),
        ("GEODIST g Palermo Catania mi", "$8 103.3182"),
        ("GEODIST g Palermo Catania ft", "$11 545518.8700"),
        ("GEODIST g Palermo Palermo", "$6 0.0000"),
        ("GEODIST g Palermo no", "$-1"),
        (
            "GEODIST g Palermo Catania x",
            "-ERR unsupported unit provided. please use M, KM, FT, MI",
        ),
        ("GEOHASH g Palermo no", "*2 $11 sqc8b49rny0 $-1"),
        ("GEOADD g 200 10 x", "-ERR invalid longitude,latitude pair 200.000000,10.000000"),
        ("GEOADD g NX XX 1 2 x", "-ERR syntax error"),
        ("GEOADD g CH 1 2 Palermo", ":1"),
        ("GEOADD g NX 1 2 Palermo", ":0"),
        ("GEOADD g a 90 x", "-ERR value is not a valid float"),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST WITHHASH",
            "*2 *3 $7 Catania $7 56.4413 :3479447370796909 "
            "*3 $7 Palermo $8 190.4424 :3479099956230698",
        ),
        ("GEOSEARCH g FROMLONLAT 15 37 BYBOX 200 400 km DESC COUNT 1", "*1 $7 Catania"),
        ("GEOSEARCH g FROMMEMBER no BYRADIUS 1 km", f"-{NO_MEMBER}"),
        ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS -1 km", "-ERR radius cannot be negative"),
        ("GEOSEARCH g FROMMEMBER Palermo BYBOX 1 x km", "-ERR need numeric height"),
        ("GEOSEARCH g FROMMEMBER Palermo BYBOX 1 -1 km", "-ERR height or width cannot be negative"),
        (
            "GEOSEARCH g FROMMEMBER Palermo BYRADIUS 1 km ANY",
            "-ERR the ANY argument requires COUNT argument",
        ),
        ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS 1 km COUNT 0", "-ERR COUNT must be > 0"),
        (
            "GEOSEARCH g FROMMEMBER Palermo BYRADIUS 1 km BYBOX 1 1 m",
            "-ERR syntax error",
        ),
        ("GEOSEARCH none FROMMEMBER Palermo BYRADIUS 1 m", "*0"),
        ("GEORADIUS_RO g 15 37 200 km ASC STORE d", "-ERR syntax error"),
        ("GEORADIUSBYMEMBER g no 200 km", f"-{NO_MEMBER}"),
        ("GEORADIUSBYMEMBER g Palermo 200 km DESC COUNT 1", "*1 $7 Catania"),
    ],
)
def test_replies(line: str, reply: str) -> None:
    executor = Executor(Keyspace(Random(1)))
    assert ask(executor, SICILY) == ":2"
    assert ask(executor, line) == reply


def test_places_are_logged_as_scores() -> None:
    executor = Executor(Keyspace(Random(1)))
    ask(executor, SICILY)
    (effect,) = executor.keyspace.take_effects()
    assert b" ".join(effect) == b"ZADD g 3479099956230698 Palermo 3479447370796909 Catania"


def test_distances_are_logged_as_they_came_out() -> None:
    executor = Executor(Keyspace(Random(1)))
    ask(executor, SICILY)
    executor.keyspace.take_effects()
    line = "GEOSEARCHSTORE d g FROMMEMBER Palermo BYRADIUS 200 km STOREDIST"
    assert ask(executor, line) == ":2"
    effects = [b" ".join(effect) for effect in executor.keyspace.take_effects()]
    assert effects == [b"DEL d", b"ZADD d 0 Palermo 166.27415156960032 Catania"]


@pytest.mark.parametrize(
    ("score", "place"),
    [
        ("inf", "$22 -179.99999731779098511 $21 -85.05112751263942528"),
        ("-inf", "$3 180 $21 -85.05112751263942528"),
        ("-5", "$3 180 $19 85.0511287799999991"),
        ("1e300", "$22 -179.99999731779098511 $21 -85.05112751263942528"),
    ],
)
def test_scores_that_are_no_places(score: str, place: str) -> None:
    """A sorted set may hold any; nothing finds them, and what looks for others near them ends."""
    executor = Executor(Keyspace(Random(1)))
    ask(executor, f"ZADD g {score} m 1 n")
    assert ask(executor, "GEOPOS g m") == f"*1 *2 {place}"
    assert ask(executor, "GEORADIUS g 13 38 20000 km WITHHASH") == "*1 *2 $1 n :1"
    assert ask(executor, "GEOSEARCH g FROMMEMBER m BYRADIUS 1000 km").startswith("*")

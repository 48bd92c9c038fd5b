"""Where messages go among shards: homes hold, the own zone comes first, ids are found."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.client.shards.sharding import ByKey, BySlot, RoundRobin, Shard, Sharding, Topology

THREE = ("http://a:1", "http://b:1", "http://c:1")
TEXT = st.text(min_size=1, max_size=20)


def topology(
    *endpoints: str | Shard, sharding: Sharding | None = None, zone: str | None = None
) -> Topology:
    return Topology(endpoints or THREE, sharding or ByKey(), zone)


def test_addresses_with_commas_are_one_cluster() -> None:
    shards = topology("http://a:1/, http://b:1/x/", Shard("https://c", name="third")).shards
    assert shards[0] == Shard("http://a:1", "http://a:1", None, ("http://b:1/x",))
    assert (shards[1].name, shards[1].url) == ("third", "https://c")


@pytest.mark.parametrize("endpoint", ["", "localhost:8711", "http://a:1,"])
def test_an_address_that_is_none_is_refused_at_once(endpoint: str) -> None:
    """What an address may be: test_endpoints."""
    with pytest.raises(ValueError, match="has no scheme"):
        topology(endpoint)


@pytest.mark.parametrize("sharding", ["key", 5, BySlot])
def test_what_is_no_sharding_is_refused_at_once(sharding: Any) -> None:
    with pytest.raises(TypeError, match="sharding is ByKey"):
        topology(sharding=sharding)


def test_one_text_is_not_as_many_ids_as_it_has_letters() -> None:
    with pytest.raises(TypeError, match="use \\['abc'\\]"):
        topology().rounds("abc", None)


def test_shards_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="one name"):
        topology("http://a:1", "http://a:1/")
    with pytest.raises(ValueError, match="address of a broker"):
        Topology((), ByKey(), None)
    with pytest.raises(TypeError, match="int"):
        topology(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="zone is a text"):
        Shard("http://a:1", zone=5)  # type: ignore[arg-type]


@given(TEXT, TEXT)
def test_by_key_the_key_counts_before_the_id(id: str, key: str) -> None:
    places = topology()
    assert places.home(id, key) == places.home("other", key) == crc32(key.encode()) % 3
    assert places.home(id) == crc32(id.encode()) % 3
    assert places.home() is None


@given(TEXT, st.integers(1, 16))
def test_by_slot_more_shards_cut_ranges_and_mix_nothing(key: str, shards: int) -> None:
    """Twice the shards: what was in range n is in range 2n or 2n + 1."""
    sharding = BySlot(64)
    few, many = sharding.home(None, key, shards), sharding.home(None, key, 2 * shards)
    assert few is not None
    assert many in (2 * few, 2 * few + 1)
    assert 0 <= few < shards


def test_slots_are_a_power_of_two_and_enough() -> None:
    for wrong in (0, -2, 3, 12):
        with pytest.raises(ValueError, match="power of two"):
            BySlot(wrong)
    with pytest.raises(TypeError, match="slots is a whole number, not str"):
        BySlot("x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 shards"):
        topology(sharding=BySlot(2))


def test_round_robin_knows_no_homes() -> None:
    places = topology(sharding=RoundRobin())
    assert places.home("id", "key") is None
    assert [places.order()[0] for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_one_shard_is_home_to_all() -> None:
    assert topology("http://a:1", sharding=RoundRobin()).home() == 0


def test_shards_of_the_own_zone_come_first() -> None:
    shards = [
        Shard("http://a:1", zone="x"),
        Shard("http://b:1", zone="y"),
        Shard("http://c:1", zone="x"),
    ]
    places = topology(*shards, zone="x")
    firsts = [places.order() for _ in range(4)]
    assert [order[0] for order in firsts] == [0, 2, 0, 2]
    assert all(order[2] == 1 and sorted(order) == [0, 1, 2] for order in firsts)
    elsewhere = topology(*shards, zone="nowhere")
    assert {elsewhere.order()[0] for _ in range(3)} == {0, 1, 2}


def test_where_an_id_is_asked_for() -> None:
    places = topology()
    home = places.home("mine")
    order = list(places.of_id("mine", None))
    assert order[0] == home
    assert sorted(order) == [0, 1, 2]
    assert list(places.of_id("mine", "http://c:1")) == [2]
    with pytest.raises(ValueError, match="shard="):
        places.of_id("~00000000000000aa", None)
    assert list(topology("http://a:1").of_id("~00000000000000aa", None)) == [0]
    with pytest.raises(ValueError, match="no shard 'x'"):
        places.of_id("mine", "x")


@given(st.lists(TEXT.filter(lambda text: not text.startswith("~")), max_size=8))
def test_rounds_ask_each_id_everywhere_once_and_at_home_first(ids: list[str]) -> None:
    places = topology()
    asked: dict[int, list[int]] = {}
    for at, some in places.rounds(ids, None):
        for place in some:
            asked.setdefault(place, []).append(at)
    assert sorted(asked) == list(range(len(ids)))
    for place, text in enumerate(ids):
        assert asked[place][0] == places.home(text)
        assert sorted(asked[place]) == [0, 1, 2]
    assert places.rounds(ids, "http://b:1") == [(1, list(range(len(ids))))]


def test_calls_about_one_broker_name_it() -> None:
    with pytest.raises(ValueError, match="give shard="):
        topology().one(None, "this")
    assert topology().one("http://b:1", "this") == 1
    assert topology("http://a:1").one(None, "this") == 0

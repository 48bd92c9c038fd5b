"""Which node is asked next, and that nobody unknown ever is."""

from __future__ import annotations

from pyspark_delaylog.route import Route


def test_the_next_node_is_asked_in_turn() -> None:
    route = Route(["http://a:1", "http://b:2"])
    seen = []
    for _ in range(3):
        seen.append(route.base)
        route.next()
    assert seen == ["http://a:1", "http://b:2", "http://a:1"]


def test_a_known_node_is_followed_whatever_the_path() -> None:
    route = Route(["http://a:1", "http://b"])
    assert route.follow("http://b:80/v1/x?y=1")
    assert route.base == "http://b"


def test_nobody_unknown_is_followed() -> None:
    route = Route(["http://a:1"])
    for location in ("http://evil:1/v1", "", "/v1/x", "https://a:1/", "http://a:xx/", "file:///a"):
        assert not route.follow(location), location
        assert route.base == "http://a:1"


def test_members_of_the_cluster_become_known() -> None:
    route = Route(["http://a:1"])
    route.learn({"members": [{"http": "http://b:2/"}, {"http": None}, {"http": "rubbish"}, {}]})
    assert route.follow("http://b:2/v1")
    route.next()
    assert route.base == "http://a:1"
    route.learn({"members": None})

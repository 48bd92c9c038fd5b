"""Which node is asked next, and that nobody unknown ever is."""

from __future__ import annotations

from pyspark_delaylog.credentials import Credentials
from pyspark_delaylog.route import Route

NONE = Credentials(environ={})
TOKEN = Credentials(token="s3cret", environ={})


def test_the_next_node_is_asked_in_turn() -> None:
    route = Route(["http://a:1", "http://b:2"])
    seen = []
    for _ in range(3):
        seen.append(route.base)
        route.next()
    assert seen == ["http://a:1", "http://b:2", "http://a:1"]


def test_a_known_node_is_followed_whatever_the_path() -> None:
    route = Route(["http://a:1", "http://b"])
    assert route.follow("http://b:80/v1/x?y=1", NONE)
    assert route.base == "http://b"


def test_nobody_unknown_is_followed() -> None:
    route = Route(["http://a:1"])
    for location in ("http://evil:1/v1", "", "/v1/x", "https://a:1/", "http://a:xx/", "file:///a"):
        assert not route.follow(location, NONE), location
        assert route.base == "http://a:1"


def test_members_of_the_cluster_become_known() -> None:
    route = Route(["http://a:1"])
    route.learn(
        {"members": [{"http": "http://b:2/"}, {"http": None}, {"http": "rubbish"}, {}]}, NONE
    )
    assert route.follow("http://b:2/v1", NONE)
    route.next()
    assert route.base == "http://a:1"
    route.learn({"members": None}, NONE)


def test_with_a_token_nobody_is_followed_out_of_tls() -> None:
    """Not even a node that the options name."""
    route = Route(["https://a:1", "http://127.0.0.1:2"])
    assert not route.follow("http://127.0.0.1:2/v1", TOKEN)
    route.learn({"members": [{"http": "http://127.0.0.1:3"}, {"http": "https://b:3"}]}, TOKEN)
    assert not route.follow("http://127.0.0.1:3/v1", TOKEN)
    assert route.follow("https://b:3/v1", TOKEN)
    assert not route.follow("https://u:p@a:1/v1", TOKEN)
    route = Route(["https://a:1", "http://127.0.0.1:2"])
    assert route.follow("http://127.0.0.1:2/v1", NONE)


def test_a_member_beyond_this_machine_is_not_learned_for_a_plain_token() -> None:
    route = Route(["http://127.0.0.1:1"])
    route.learn({"members": [{"http": "http://b:2"}]}, TOKEN)
    assert not route.follow("http://b:2/v1", TOKEN)
    insecure = Credentials(token="s3cret", insecure_plain_token=True, environ={})
    route.learn({"members": [{"http": "http://b:2"}]}, insecure)
    assert route.follow("http://b:2/v1", insecure)

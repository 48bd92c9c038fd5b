"""Which node is asked next, and that nobody unknown ever is."""

from __future__ import annotations

import pytest

from delaylog.client.wire.credentials import Credentials, CredentialsError
from delaylog.client.wire.leader_route import LeaderRoute

TOKEN = Credentials(token="s3cret", environ={})


def test_the_next_node_is_asked_in_turn() -> None:
    route = LeaderRoute("http://a:1", ["http://b:2"])
    seen = []
    for _ in range(3):
        seen.append(route.node)
        route.next(route.node)
    assert seen == ["http://a:1", "http://b:2", "http://a:1"]


def test_a_node_that_another_thread_has_left_is_not_left_twice() -> None:
    route = LeaderRoute("http://a:1", ["http://b:2"])
    route.next("http://a:1")
    route.next("http://a:1")
    assert route.nodes == ("http://b:2", "http://a:1")


def test_a_known_node_is_followed_whatever_the_path() -> None:
    route = LeaderRoute("http://a:1", ["http://b"])
    assert route.follow("http://b:80/v1/x?y=1")
    assert route.node == "http://b"


UNKNOWN = ("http://evil:1/v1", "", "/v1/x", "https://a:1/", "http://a:xx/", "file:///a")
ODD = ("//a:1/", "http://a:2/", "http://a:1@evil/", "http://[")


@pytest.mark.parametrize("location", [*UNKNOWN, *ODD])
def test_nobody_unknown_is_followed(location: str) -> None:
    route = LeaderRoute("http://a:1/behind/a/proxy/")
    assert not route.follow(location)
    assert route.node == "http://a:1/behind/a/proxy"


def test_members_of_the_cluster_become_known() -> None:
    route = LeaderRoute("http://a:1")
    route.learn({"members": [{"http": "http://b:2/"}, {"http": None}, {"http": "rubbish"}, {}, 1]})
    assert route.nodes == ("http://a:1", "http://b:2")
    assert route.follow("http://b:2/v1")
    route.next("http://b:2")
    assert route.node == "http://a:1"
    for odd in (None, "odd"):
        route.learn({"members": odd})
    assert route.known == 2


def test_with_a_token_nobody_is_followed_out_of_tls() -> None:
    """Not even a node that the caller names."""
    nodes = ("https://a:1", ["http://127.0.0.1:2"])
    route = LeaderRoute(*nodes, TOKEN)
    assert not route.follow("http://127.0.0.1:2/v1")
    route.learn({"members": [{"http": "http://127.0.0.1:3"}, {"http": "https://b:3"}]})
    assert not route.follow("http://127.0.0.1:3/v1")
    assert route.follow("https://b:3/v1")
    assert not route.follow("https://u:p@a:1/v1")
    assert LeaderRoute(*nodes).follow("http://127.0.0.1:2/v1")


def test_a_member_beyond_this_machine_is_not_learned_for_a_plain_token() -> None:
    member = {"members": [{"http": "http://b:2"}]}
    route = LeaderRoute("http://127.0.0.1:1", (), TOKEN)
    route.learn(member)
    assert not route.follow("http://b:2/v1")
    with pytest.raises(CredentialsError):
        LeaderRoute("http://b:2", (), TOKEN)
    insecure = Credentials(token="s3cret", insecure_plain_token=True, environ={})
    route = LeaderRoute("http://127.0.0.1:1", (), insecure)
    route.learn(member)
    assert route.follow("http://b:2/v1")

"""Redis clients of a cluster: every node knows the users, and none serves them without a leader."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from delaylog.broker.engine.access.token_form import RANDOM_BYTES, make_token
from tests.broker.cluster.conftest import start_three  # noqa: F401
from tests.broker.cluster.three_nodes import ThreeNodes
from tests.broker.resp.resp_client import RespClient, is_closed, is_error


def test_users_of_a_cluster(start_three: Callable[..., ThreeNodes]) -> None:  # noqa: F811
    three = start_three(token=make_token(os.urandom(RANDOM_BYTES)), redis=True)
    leader, (follower, other) = three.leader(), three.followers()
    admin = RespClient(three.resp[leader])
    # A busy machine may change the leader right after the start.
    three.until(lambda: admin.call("AUTH", three.token) == b"OK")
    made = three.call(three.leader(), "PUT", "/v1/principals/shop", {"grants": ["redis"]})
    token = made.json["token"]
    client = RespClient(three.resp[follower])
    # A follower that has not applied the change yet looks once more, and a busy one needs longer.
    three.caught_up()
    assert client.call("HELLO", 2, "AUTH", "shop", token)[:2] == [b"server", b"redis"]
    assert client.call("GET", "k") is None
    assert is_error(client.call("SET", "k", "v"), "READONLY")

    for node in (leader, other):
        three.signal(node, signal.SIGSTOP)
    try:
        cut = time.monotonic()
        # Also what needs no data elsewhere: this user may have been removed.
        three.until(lambda: is_error(client.call("INFO"), "MASTERDOWN"))
        assert time.monotonic() - cut < 5
        for command in (
            ("GET", "k"),
            ("SENTINEL", "MASTERS"),
            ("DL.STATS", "t"),
        ):
            assert is_error(client.call(*command), "MASTERDOWN"), command
        assert client.call("SELECT", 1) == client.call("SELECT", 0) == b"OK"
        assert client.call("ACL", "WHOAMI") == b"shop"
        newcomer = RespClient(three.resp[follower])
        assert is_error(newcomer.call("AUTH", token), "MASTERDOWN")
        newcomer.close()
    finally:
        for node in (leader, other):
            three.signal(node, signal.SIGCONT)
    three.until(lambda: client.call("GET", "k") is None)
    assert three.call(three.leader(), "DELETE", "/v1/principals/shop").status == 200
    assert is_closed(client)
    for each in (admin, client):
        each.close()

"""Addresses that differ between the cluster file, the options of `serve` and other nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delaylog.broker.cluster.config import Member
from delaylog.broker.cluster.members.node_status import Status
from delaylog.broker.cluster.watch.member_watch import (
    announced,
    announced_elsewhere,
    unlike_options,
)

PEER = ("10.0.0.1", 8712)
ME = Member(1, "alpha", PEER, PEER, "http://10.0.0.1:8711")
RESP = replace(ME, resp=("10.0.0.1", 6379))
HTTPS = replace(ME, http_url="https://10.0.0.1:8711")


def test_a_node_announces_what_its_own_file_says() -> None:
    status = Status(**announced(ME))
    assert (status.http, status.peer) == ("http://10.0.0.1:8711", "10.0.0.1:8712")
    assert announced_elsewhere(ME, status) == {}


def test_another_file_says_otherwise() -> None:
    status = Status(http="http://10.0.0.1:9999", peer="10.0.0.9:8712")
    assert announced_elsewhere(ME, status) == {
        "http": ("http://10.0.0.1:9999", "http://10.0.0.1:8711"),
        "peer": ("10.0.0.9:8712", "10.0.0.1:8712"),
    }


def test_an_older_release_announces_nothing() -> None:
    assert announced_elsewhere(ME, Status()) == {}


@pytest.mark.parametrize(
    ("member", "http", "resp", "says"),
    [
        (ME, 8711, None, None),
        (RESP, 8711, 6379, None),
        (ME, 8710, None, "clients of this node to http://10.0.0.1:8711"),
        (ME, 8711, 6379, "no `resp` for this node"),
        (RESP, 8711, None, "10.0.0.1:6379, and it was started without --resp"),
        (RESP, 8711, 6380, "--resp listens on port 6380, and the cluster sends Redis clients"),
    ],
)
def test_options_of_serve(member: Member, http: int, resp: int | None, says: str | None) -> None:
    found = list(unlike_options(member, http, resp, has_tls=False))
    assert len(found) == (says is not None)
    if says is not None:
        assert says in found[0]


@pytest.mark.parametrize(
    ("member", "has_tls", "says"),
    [
        (HTTPS, True, None),
        (ME, True, "http://10.0.0.1:8711, and this node uses TLS: write its `http` as https://"),
        (HTTPS, False, "https://10.0.0.1:8711, and this node does not use TLS: unless a proxy"),
    ],
)
def test_tls_of_serve(member: Member, has_tls: bool, says: str | None) -> None:
    found = list(unlike_options(member, 8711, None, has_tls=has_tls))
    assert len(found) == (says is not None)
    if says is not None:
        assert says in found[0]

"""Statuses between nodes: what is kept of them, what is refused, and that they grow."""

from __future__ import annotations

from dataclasses import asdict

import msgpack
import pytest

from delaylog.broker.cluster.member_events import USED_MAX
from delaylog.broker.cluster.members.node_status import (
    Status,
    Statuses,
    decode_status,
    encode_status,
)
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import NodeStatus
from delaylog.replication.wire import STATUS_BYTES_MAX


def message(members: object) -> NodeStatus:
    return NodeStatus(msgpack.packb(members))


def test_what_was_said_is_heard_until_the_peer_goes() -> None:
    statuses = Statuses()
    said = Status(wall_us=7)
    assert statuses.hear(2, encode_status(said), 9) == said
    assert statuses.of(2) == said
    assert statuses.echo(2) == {"echo_wall_us": 7, "echo_heard_us": 9}
    statuses.lost(2)
    assert statuses.of(2) is None
    assert statuses.echo(2) == {}


def test_members_of_other_releases_are_ignored_or_have_defaults() -> None:
    assert decode_status(message({"of_a_later_release": [1]})) == Status()


@pytest.mark.parametrize(
    "bad",
    [
        NodeStatus(b"\xc1"),
        NodeStatus(b"\x81\x91\x01\x02"),
        message([1]),
        message({"wall_us": "now"}),
        message({"wall_us": True}),
        message({"met": {"1": 1}}),
        message({"used": {"a": "b"}}),
    ],
)
def test_what_is_no_status_is_refused(bad: NodeStatus) -> None:
    with pytest.raises(PeerError, match="status"):
        decode_status(bad)


def test_the_largest_status_fits_into_its_message() -> None:
    """As large as the names, the addresses and the numbers of a cluster may be."""
    number = 2**63
    status = Status(
        **{name: number for name, value in asdict(Status()).items() if type(value) is int},
        http="h" * 300,
        peer="p" * 262,
        release="1.2.3.dev4+of.a.long.branch",
        unfit="u" * 100,
        zone="z" * 64,
        met=dict.fromkeys(range(number, number + 15), number),
        elections="raftos",
        used={f"{n:0100}": number for n in range(USED_MAX)},
    )
    assert len(encode_status(status).members) <= STATUS_BYTES_MAX

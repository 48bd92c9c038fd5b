"""Every command that the endpoint serves, for users who may do little.

The commands come from the live registry, not from the tables that the broker decides by; what each
verb of the delay log needs is written down here. A refused command changes nothing, and its reply
is the same whether what it names exists or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delaylog.broker.keyspace.command import Command
from delaylog.broker.keyspace.registry import COMMANDS
from delaylog.broker.resp.face import NATIVE_VERBS
from tests.broker.keyspace.running.test_limited import OPEN
from tests.broker.resp.conftest import RespSecured
from tests.broker.resp.resp_client import RespClient, is_error

assert NATIVE_VERBS
RECEIPT = "0" * 32
VERBS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "dl.send": ("send", (3_600_000, "x")),
    "dl.msend": ("send", (3_600_000, "x", 3_600_000, "y")),
    "dl.receive": ("receive", (1,)),
    "dl.ack": ("receive", (RECEIPT,)),
    "dl.ackreceive": ("receive", (1, "RECEIPTS", RECEIPT)),
    "dl.nack": ("receive", (RECEIPT,)),
    "dl.extend": ("receive", (1, RECEIPT)),
    "dl.get": ("read", ("known-id",)),
    "dl.stats": ("read", ()),
    "dl.cancel": ("change", ("known-id",)),
    "dl.reschedule": ("change", ("known-id", 3_600_000)),
}
"""The right that each verb needs, and words after its topic."""
ROLES: dict[str, tuple[list[str], set[str]]] = {
    "nobody": ([], set()),
    "producer": (["producer:mine"], {"send"}),
    "consumer": (["consumer:mine"], {"receive"}),
    "viewer": (["viewer:mine"], {"read"}),
    "changer": (["change:mine"], {"change"}),
    "owner": (["admin:mine"], {"send", "receive", "read", "change"}),
    "user of keys": (["redis"], set()),
}
"""Grants, and the rights on topic `mine` that follow from them."""
FOREIGN = ("theirs", "else/mine", "absent", "mine2")


def verbs() -> Iterator[str]:
    """The verbs of the delay log, as the endpoint serves them."""
    for command in COMMANDS.values():
        if command.group == "module":
            yield command.name.decode()


def state(admin: RespClient) -> list[Any]:
    """What refused verbs must leave as it is."""
    seen = [admin.call("DL.STATS", topic) for topic in ("mine", *FOREIGN)]
    return [*seen, *(admin.call("DL.GET", topic, "known-id") for topic in ("theirs", "else/mine"))]


@pytest.fixture(scope="module")
def admin(secured: RespSecured) -> RespClient:
    """The administrator, with messages in three topics and a key."""
    client = secured.connect()
    for topic in ("mine", "theirs", "else/mine"):
        client.call("DL.SEND", topic, 3_600_000, "secret-body", "ID", "known-id")
    client.call("SET", "hidden-key", "hidden-value")
    return client


def test_every_verb_has_a_row() -> None:
    assert set(verbs()) == VERBS.keys()


@pytest.mark.parametrize("role", ROLES)
def test_verbs_of_the_delay_log(secured: RespSecured, admin: RespClient, role: str) -> None:
    grants, rights = ROLES[role]
    client = secured.user(*grants)
    before = state(admin)
    for verb in verbs():
        right, rest = VERBS[verb]
        texts = set()
        for topic in FOREIGN if right in rights else ("mine", *FOREIGN):
            reply = client.call(verb, topic, *rest)
            assert is_error(reply, "NOPERM"), (verb, topic, reply)
            *space, name = topic.split("/")
            of = f"topic '{name}' of namespace '{space[0] if space else 'default'}'"
            texts.add((verb, str(reply).replace(of, "…")))
        assert len(texts) == 1, "the text tells nothing about the topic"
    assert state(admin) == before
    for verb in verbs():
        right, rest = VERBS[verb]
        if right in rights:
            reply = client.call(verb, "mine", *rest)
            assert not is_error(reply, "NOPERM"), (verb, reply)
    client.close()


def test_a_group_is_a_limit(secured: RespSecured, admin: RespClient) -> None:
    """Receipts name no group, and those of another group settle nothing."""
    for group in ("ours", "others"):
        assert secured.call("PUT", f"/v1/topics/grouped/groups/{group}", {}).status in (200, 201)
    admin.call("DL.MSEND", "grouped", 0, "a", 0, "b")
    client = secured.user("consumer:grouped:ours")
    assert is_error(client.call("DL.RECEIVE", "grouped", 1), "NOPERM")
    assert is_error(client.call("DL.RECEIVE", "grouped", 1, "GROUP", "others"), "NOPERM")
    absent = secured.user("consumer:grouped:absent")
    told = absent.call("DL.RECEIVE", "grouped", 1, "GROUP", "absent")
    assert str(told) == "UNKNOWN topic 'grouped' has no group 'absent'", "it names no other group"
    mine = client.call("DL.RECEIVE", "grouped", 1, "GROUP", "ours", "WAIT", 5_000)
    theirs = admin.call("DL.RECEIVE", "grouped", 1, "GROUP", "others", "WAIT", 5_000)
    own, other = mine[0][1], theirs[0][1]
    assert client.call("DL.EXTEND", "grouped", 60_000, own, other) == 1
    assert client.call("DL.NACK", "grouped", other) == 0
    assert client.call("DL.ACK", "grouped", other) == 0
    taken = client.call("DL.ACKRECEIVE", "grouped", 1, "GROUP", "ours", "RECEIPTS", other, own)
    assert taken[0] == [0, 1]
    assert admin.call("DL.ACK", "grouped", other) == 1


def test_bodies_are_a_right_of_their_own(secured: RespSecured, admin: RespClient) -> None:
    for grant, seen in (("viewer:theirs", False), ("read,bodies:theirs", True)):
        client = secured.user(grant)
        assert (b"secret-body" in client.call("DL.GET", "theirs", "known-id")) is seen


def test_reasons_are_seen_with_bodies(secured: RespSecured, admin: RespClient) -> None:
    admin.call("DL.SEND", "quoted", 0, "x", "ID", "m")
    ((_, receipt, *_),) = admin.call("DL.RECEIVE", "quoted", 1, "WAIT", 5_000)
    assert admin.call("DL.NACK", "quoted", "REASON", "secret-body", receipt) == 1
    for grant, seen in (("viewer:quoted", False), ("read,bodies:quoted", True)):
        told = repr(secured.user(grant).call("DL.GET", "quoted", "m"))
        assert ("secret-body" in told) is seen
        assert "nack" in told


def test_limits_of_a_principal(secured: RespSecured) -> None:
    sender = secured.connect(secured.token("producer", messages_per_s=3))
    # At once, since the limits grow back.
    sent, refused = sender.pipeline(
        ("DL.MSEND", "limited", 0, "a", 0, "b", 0, "c"), ("DL.SEND", "limited", 0, "d")
    )
    assert not is_error(sent, "QUOTA")
    assert is_error(refused, "QUOTA the principal's limit")
    caller = secured.connect(secured.token("viewer", calls_per_s=2))
    replies = caller.pipeline(*[("DL.STATS", "limited")] * 4)
    assert is_error(replies[-1], "QUOTA the principal's limit of 2 calls")


# --------------------------------------------------------------------------- other commands


@pytest.mark.parametrize("grants", [[], ["producer", "consumer", "viewer", "operator"]])
def test_other_commands(secured: RespSecured, admin: RespClient, grants: list[str]) -> None:
    """Without the right `redis` there is the connection, and nothing else."""
    token = secured.token(*grants)
    before = keyspace(admin)
    for command in every_command():
        name = command.name.decode()
        client = secured.connect(token)
        words = name.split("|")
        client.send(*words, *["hidden-key"] * (abs(command.arity) - len(words)))
        reply = client.reply()
        client.close()
        open_to_all = name in OPEN or name.endswith("|help")
        assert is_refused(reply) is not open_to_all, (name, reply)
        assert "hidden-value" not in str(reply)
    assert keyspace(admin) == before


def every_command() -> Iterator[Command]:
    """Every command but the verbs of the delay log; subcommands instead of their container."""
    for command in COMMANDS.values():
        if command.group != "module":
            if not command.subcommands or command.arity == -1:
                yield command
            yield from command.subcommands.values()


def is_refused(reply: Any) -> bool:
    """Whether a command was refused for want of a right; EXEC says so in its own way."""
    return is_error(reply, "NOPERM") or is_error(
        reply, "EXECABORT Transaction discarded because of: N"
    )


def keyspace(admin: RespClient) -> list[Any]:
    """What refused commands must leave as it is."""
    return [
        admin.call("GET", "hidden-key"),
        admin.call("PTTL", "hidden-key"),
        admin.call("DBSIZE"),
        admin.call("CONFIG", "GET", "*"),
        admin.call("FUNCTION", "LIST"),
        admin.call("PUBSUB", "CHANNELS"),
    ]

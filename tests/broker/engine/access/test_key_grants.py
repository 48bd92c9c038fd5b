"""Grants that follow from rules for Redis commands, and the rules that a principal may have."""

from __future__ import annotations

import pytest

from delaylog.broker.engine.access import commands
from delaylog.broker.engine.access.grants import parse_grant
from delaylog.broker.engine.access.key_grants import RIGHTS_OF, grants_of
from delaylog.broker.engine.access.principals import Principal, Secret
from delaylog.broker.engine.errors import BadRequestError, ConflictError
from delaylog.broker.keyspace.command import DL_CATEGORIES
from tests.broker.engine.host import Host


def may(rules: str, right: str, topic: str) -> bool:
    """Whether a principal with these rules has a right on `[namespace/]topic`."""
    namespace, _, name = topic.rpartition("/")
    permissions = Principal("p", (), redis=tuple(rules.split())).permissions
    return permissions.may(right, (namespace or "default", name))


def test_every_category_gives_a_right() -> None:
    assert RIGHTS_OF.keys() == set(DL_CATEGORIES)


@pytest.mark.parametrize(
    ("rules", "right", "allowed", "refused"),
    [
        ("+@dlsend ~orders*", "send", "orders orders-1", "order orders/x x/orders Orders"),
        ("+@dlsend ~orders*", "receive", "", "orders"),
        ("+@dlsend ~*", "send", "a x/a default/a", ""),
        ("+@dlsend allkeys", "send", "a x/a", ""),
        ("+@dlreceive ~billing/*", "receive", "billing/a", "a billings/a other/billing"),
        ("+@dlreceive ~b*/a", "receive", "b/a bb/a", "a/a b/ab"),
        ("+@dlread %R~a?", "read", "ab", "a abc"),
        ("+@dlread %R~a?", "bodies", "ab", "a"),
        ("+@dlread %W~a", "read", "", "a"),
        ("+@dlchange %W~[ab]", "change", "a b", "c"),
        ("+@all ~a", "send", "a", "b"),
        ("+@all -@dlsend ~a", "send", "", "a"),
        ("+@all -@dlsend ~a", "change", "a", "b"),
        ("+@read +@write +@fast +@slow ~*", "send", "", "a"),
        ("+@all ~*", "admin", "", "a"),
        ("~a", "send", "", "a"),
        ("+@dlsend", "send", "", "a"),
    ],
)
def test_patterns_name_topics(rules: str, right: str, allowed: str, refused: str) -> None:
    for topic in allowed.split():
        assert may(rules, right, topic), topic
    for topic in refused.split():
        assert not may(rules, right, topic), topic


def test_grants_and_rules_add_up() -> None:
    principal = Principal("p", (parse_grant("receive:a"),), redis=("+@dlsend", "~b"))
    permissions = principal.permissions
    assert permissions.may("receive", ("default", "a"))
    assert permissions.may("send", ("default", "b"))
    assert not permissions.may("send", ("default", "a"))
    assert not permissions.may_everywhere("send")
    assert Principal("p", (), redis=("+@dlsend", "~*")).permissions.may_everywhere("send")
    assert str(grants_of(("+@dlread", "~b"))[0]) == "bodies,read:b"


def test_words_of_a_later_release_allow_nothing() -> None:
    """A principal that a newer release has stored is still there after a return to this one."""
    words = ("+@new", "^a", "+@dlsend", "~" + "x" * 2_000, "~a")
    assert may(" ".join(words), "send", "a")
    assert not may(" ".join(words), "send", "x" * 200)
    assert not may("+@all -@new ~a", "send", "a")
    assert may("+@all -@new +@dlsend ~a", "send", "a")


def test_rules_are_checked_and_stored_in_their_short_form(host: Host) -> None:
    state = host.engine.state
    given = Principal("p", (), redis=("allkeys", "+GET", "+get", "resetkeys", "~a"))
    commands.put_principal(state, given, host.now_ms)
    assert state.access.principals["p"].redis == ("+get", "~a")
    for words, why in (
        (("+nosuch",), "the Redis rule '.nosuch': Unknown command"),
        (("(+get)",), "selectors are not supported"),
        (("+dl.send",), "allowed by category"),
        (("get",), "Syntax error"),
    ):
        with pytest.raises(BadRequestError, match=why) as refused:
            commands.put_principal(state, Principal("q", (), redis=words), host.now_ms)
        assert refused.value.field == "redis"
    assert "q" not in state.access.principals


def test_no_two_principals_have_one_secret(host: Host) -> None:
    """The secret alone names its principal."""
    state = host.engine.state
    commands.put_principal(state, Principal("a", (), (Secret(b"x", 1),)), host.now_ms)
    with pytest.raises(ConflictError, match="another principal has this secret"):
        commands.put_principal(state, Principal("b", (), (Secret(b"x", 1),)), host.now_ms)
    commands.put_principal(state, Principal("a", (), (Secret(b"x", 1),)), host.now_ms)
    assert state.access.by_digest[b"x"].name == "a"


def test_the_last_administrator_keeps_a_secret(host: Host) -> None:
    state = host.engine.state
    admin = Principal("a", (parse_grant("admin"),), (Secret(b"x", 1),))
    commands.put_principal(state, admin, host.now_ms)
    with pytest.raises(ConflictError, match="is the last administrator"):
        commands.put_principal(state, Principal("a", (parse_grant("admin"),)), host.now_ms)

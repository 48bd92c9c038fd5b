"""Grants against a plain model: every right on every topic and group of a small world."""

from __future__ import annotations

import re
import time
from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.engine.access.grants import (
    OF_BROKER,
    RIGHTS,
    ROLES,
    Grant,
    Permissions,
    parse_grant,
)
from delaylog.broker.engine.errors import BadRequestError

NAMESPACES = ("default", "billing")
TOPICS = ("orders", "orders.new", "mail")
GROUPS = ("default", "workers", "audit")
PATTERNS = st.sampled_from(["*", "orders", "orders*", "*new", "o*s", "mail", "default", "bill*"])
GRANTS = st.builds(
    Grant,
    st.frozensets(st.sampled_from(sorted(RIGHTS - OF_BROKER)), min_size=1),
    PATTERNS,
    PATTERNS,
    st.sampled_from(["*", "workers", "w*", "audit"]),
)


@given(st.lists(GRANTS, max_size=4))
def test_every_decision_is_that_of_the_model(grants: list[Grant]) -> None:
    permissions = Permissions(grants)
    for right, namespace, topic in product(sorted(RIGHTS - OF_BROKER), NAMESPACES, TOPICS):
        holding = [
            grant
            for grant in grants
            if right in grant.rights
            and fnmatchcase(namespace, grant.namespace)
            and fnmatchcase(topic, grant.topic)
        ]
        key = namespace, topic
        for group in GROUPS:
            expected = any(right == "send" or fnmatchcase(group, grant.group) for grant in holding)
            assert permissions.may(right, key, group) == expected
            assert permissions.may(right, key, group) == expected, "the cached decision"
        whole = any(right == "send" or grant.group == "*" for grant in holding)
        assert permissions.may(right, key) == whole
        assert permissions.may_in_some_group(right, key) == bool(holding)
        assert permissions.may_everywhere(right) == any(
            right in grant.rights and grant.namespace == grant.topic == grant.group == "*"
            for grant in grants
        )


@given(GRANTS)
def test_a_grant_is_parsed_from_its_own_text(grant: Grant) -> None:
    parsed = parse_grant(str(grant))
    if "admin" in grant.rights:
        # The right to administer brings all others on the same topics.
        assert parsed.rights >= grant.rights
        assert str(parse_grant(str(parsed))) == str(parsed)
    else:
        assert parsed == grant


@pytest.mark.parametrize(
    ("text", "grant"),
    [
        ("send:orders.*", Grant(frozenset({"send"}), "default", "orders.*")),
        ("receive:billing/orders:w*", Grant(frozenset({"receive"}), "billing", "orders", "w*")),
        ("send,receive:a", Grant(frozenset({"send", "receive"}), "default", "a")),
        ("producer", Grant(frozenset({"send"}))),
        ("viewer", Grant(ROLES["viewer"])),
        ("viewer:orders", Grant(frozenset({"read"}), "default", "orders")),
        ("admin", Grant(RIGHTS)),
        ("admin:*/orders", Grant(RIGHTS - OF_BROKER, "*", "orders")),
        ("operate,metrics", Grant(frozenset({"operate", "metrics"}))),
    ],
)
def test_texts(text: str, grant: Grant) -> None:
    assert parse_grant(text) == grant


def test_a_pattern_may_have_letters_of_every_alphabet() -> None:
    """A topic of camellia may be named so."""
    permissions = Permissions([parse_grant("send:订单*")])
    assert permissions.may("send", ("default", "订单.1"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is no right and no role"),
        ("sends:orders", "'sends' is no right and no role; known are admin"),
        ("any", "'any' is no right"),
        ("send:a:b:c", "more than three parts"),
        ("send:", "1 to 200 characters"),
        ("send:a:", "1 to 200 characters"),
        ("send:/a", "1 to 200 characters"),
        ("send:" + "a" * 201, "1 to 200 characters"),
        ("send:a\nb", "printable"),
        ("operate:orders", "operate concerns the whole broker"),
        ("producer:lo ad*", "' ' is in no name"),
        ("producer:orders,bills", "',' is in no name"),
        ("producer:orders.?", "'?' is in no name"),
        ("producer:orders.[ab]", "'[' is in no name"),
        ("producer:a/b/c", "'/' is in no name"),
        ("producer: orders", "' ' is in no name"),
        ("consumer:orders:my group", "' ' is in no name"),
    ],
)
def test_wrong_texts_are_named(text: str, why: str) -> None:
    with pytest.raises(BadRequestError, match=re.escape(why)) as refused:
        parse_grant(text)
    assert refused.value.field == "grants"


def test_a_pattern_has_no_other_wild_cards() -> None:
    """Stored by an earlier release, which accepted them."""
    permissions = Permissions([parse_grant("send:a.c[x]?", stored=True)])
    assert permissions.may("send", ("default", "a.c[x]?"))
    for topic in ("abc[x]?", "a.cx?", "a.c[x]z", "a.c[x]?\n", "\na.c[x]?"):
        assert not permissions.may("send", ("default", topic))
    assert Permissions([parse_grant("send:a*z")]).may("send", ("default", "a\nz"))


@given(st.text("ab*", min_size=1, max_size=12), st.text("ab", max_size=12))
def test_stars_match_as_in_a_shell(pattern: str, name: str) -> None:
    permissions = Permissions([Grant(frozenset({"send"}), "*", pattern)])
    assert permissions.may("send", ("default", name)) == fnmatchcase(name, pattern)


@pytest.mark.parametrize("pattern", ["*-*-*-*/*-*-*-*b", "*-*-*-*/b", "*" * 100 + "b"])
def test_no_name_takes_long_to_match(pattern: str) -> None:
    """A caller chooses the name. Backtracking would take years for some."""
    began = time.monotonic()
    key = "-" * 200, "-" * 200
    assert not Permissions([parse_grant(f"send:{pattern}")]).may("send", key)
    assert time.monotonic() - began < 5


def test_decisions_on_huge_names_are_not_kept() -> None:
    permissions = Permissions([parse_grant("send:x*")])
    assert permissions.may("send", ("default", "x" * 1_000_000))
    assert not permissions._decided


def test_no_name_reaches_into_another_namespace() -> None:
    permissions = Permissions([parse_grant("send:a/b*")])
    assert not permissions.may("send", ("a/b", "c"))
    assert permissions.may("send", ("a", "b\0c"))
    assert not Permissions([parse_grant("send:a*/b")]).may("send", ("default", "b"))


def test_many_decisions_are_not_all_kept() -> None:
    permissions = Permissions([parse_grant("send:t1*")])
    for number in range(10_000):
        key = "default", f"t{number}"
        assert permissions.may("send", key) == str(number).startswith("1")

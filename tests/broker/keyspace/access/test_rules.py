"""Rules in the words of ACL SETUSER: what they mean, their short form, and what is refused."""

from __future__ import annotations

import pytest

from delaylog.broker.keyspace.access.rights import check_rules
from delaylog.broker.keyspace.access.rules import KeyPattern, RuleError, of_topics, parse_rules
from delaylog.broker.keyspace.commands import all_commands  # noqa: F401 (fills the table)

SHORT = [
    ("", ""),
    ("nocommands resetkeys resetchannels", ""),
    ("+get +get", "+get"),
    ("+get -@all", ""),
    ("+get allcommands", "+@all"),
    ("-@dangerous +@all", "+@all"),
    ("+@read -get +@read", "-get +@read"),
    ("+config|get -config", "-config"),
    ("-config +config|get", "-config +config|get"),
    ("+GET -Config|Set", "+get -config|set"),
    ("~a ~b ~a", "~a ~b"),
    ("%R~a %W~a", "~a"),
    ("%r~a %wr~b", "%R~a ~b"),
    ("~a allkeys", "~*"),
    ("%RW~*", "~*"),
    ("allkeys resetkeys ~a", "~a"),
    ("&a &b &a", "&a &b"),
    ("&a allchannels", "&*"),
    ("~Jobs:* &News", "~Jobs:* &News"),
    ("&c ~k +get", "+get ~k &c"),
]
REFUSED = [
    ("get", "Syntax error"),
    ("+nosuch", "Unknown command or category"),
    ("-nosuch", "Unknown command or category"),
    ("+", "Unknown command or category"),
    ("+@nosuch", "Unknown command or category"),
    ("+config|nosuch", "Unknown command or category"),
    ("+config|", "Syntax error"),
    ("+config|get|x", "first-arg of a subcommand"),
    ("+select|0", "select has no subcommands"),
    ("+dl.send", "by category: @dlsend @dlreceive @dlread @dlchange"),
    ("%X~a", "Syntax error"),
    ("%~a", "Syntax error"),
    ("%R", "Syntax error"),
    ("%RR~a", "Syntax error"),
    ("~a b", "Syntax error"),
    ("&a\nb", "Syntax error"),
    ("allkeys ~a", "Try 'resetkeys' to start with an empty list of patterns"),
    ("allchannels &a", "Try 'resetchannels' to start with an empty list of channels"),
    ("(+get)", "selectors are not supported"),
    ("~" + "x" * 1_100, "a pattern may have 1024 bytes at most"),
]


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split()) if "\n" not in text and "a b" not in text else (text,)


@pytest.mark.parametrize(("given", "short"), SHORT)
def test_short_forms(given: str, short: str) -> None:
    rules = check_rules(words(given))
    assert " ".join(rules.words) == short
    assert check_rules(rules.words) == rules


@pytest.mark.parametrize(("given", "why"), REFUSED)
def test_what_is_refused_is_named(given: str, why: str) -> None:
    with pytest.raises(RuleError, match=why) as refused:
        check_rules(words(given))
    assert refused.value.word in (words(given)[-1].lower(), words(given)[-1], words(given)[-1][1:])


def test_the_size_of_rules_is_limited() -> None:
    with pytest.raises(RuleError, match="a user has at most 256 rules"):
        check_rules(tuple(f"~{n}" for n in range(257)))
    with pytest.raises(RuleError, match="at most 8192 bytes"):
        check_rules(tuple("~" + f"{n:02}" * 250 for n in range(20)))
    with pytest.raises(RuleError, match="UTF-8"):
        check_rules(("~\udcff",))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("+@dlsend", {"dlsend": ""}),
        ("+@dlsend ~a", {"dlsend": "~a"}),
        ("+@dlsend %R~a", {"dlsend": ""}),
        ("+@dlread %R~a %W~b", {"dlread": "%R~a"}),
        ("+@dlreceive %W~a ~b", {"dlreceive": "%W~a ~b"}),
        ("+@dlchange -@dlchange ~a", {}),
        ("+@all -@dlsend -@dlread -@dlchange ~a", {"dlreceive": "~a"}),
        ("+@dlsend -@all ~a", {}),
        ("+@write +@read ~a", {}),
    ],
)
def test_rights_on_topics(given: str, found: dict[str, str]) -> None:
    topics = of_topics(parse_rules(given.split()))
    assert {category: " ".join(map(str, keys)) for category, keys in topics} == found


def test_a_pattern_shows_its_kind() -> None:
    assert [
        str(KeyPattern("a", *kind)) for kind in ((True, True), (True, False), (False, True))
    ] == [
        "~a",
        "%R~a",
        "%W~a",
    ]

"""The words that people try first, and what is suggested for them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from delaylog.broker.cli.meant import _ACTIONS, _OPTIONS, _VERBS, option_meant, verb_meant
from delaylog.broker.cli.parser import make_parser
from delaylog.broker.cli.verbs import VERBS
from tests.starts.warm import as_text, run_warm


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for each in parser._actions:
        yield from each.option_strings
        if isinstance(each, argparse._SubParsersAction):
            for below in each.choices.values():
                yield from options(below)


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        *(("retry", "replay"), ("settings", "config"), ("move", "reschedule")),
        *(("pending", "list"), ("delete", "cancel"), ("help", "--help"), ("DELETE", "cancel")),
        *(("ping", "doctor"), ("group", "groups"), ("webhook", "target")),
        *(("sned", "send"), ("resch", "reschedule"), ("version", "--version")),
    ],
)
def test_verbs_by_meaning_then_by_spelling(word: str, verb: str) -> None:
    assert verb_meant(word, VERBS) == verb
    done = as_text(run_warm(word, "t", "x"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no verb {word!r}: did you mean {verb}? `delaylog --help`" in done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("topic create foo", "topic set"),
        ("topic delete foo", "topic drop"),
        ("topic list", "topics"),
        ("topics list", "topics"),
        ("topics show foo", "topic --help"),
        ("job list", "jobs"),
        ("jobs ls", "jobs"),
        ("job cancel j1", "job stop"),
        ("groups create t g", "groups make"),
        ("schedule add t s", "schedule put"),
        ("schedule update t s", "schedule change"),
        ("schedule next t s", "schedule preview"),
        ("target remove t g", "target drop"),
        ("claims get t c", "claims show"),
        ("token delete x", "token revoke"),
        ("cluster show", "cluster status"),
        ("config show", "config"),
        ("dead list t", "dead"),
    ],
)
def test_actions_by_meaning(words: str, meant: str) -> None:
    done = as_text(run_warm(*words.split()))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"did you mean `delaylog {meant}`?" in done.stderr


def test_an_action_that_means_nothing() -> None:
    done = as_text(run_warm("topic", "xyzzy", "--json"))
    assert done.returncode == 2
    assert "topic has no action 'xyzzy': it has show, set, drop" in done.stderr


def test_every_action_of_the_table_exists() -> None:
    known = {
        name
        for each in make_parser()._actions
        if isinstance(each, argparse._SubParsersAction)
        for verb in each.choices.values()
        for below in verb._actions
        if isinstance(below, argparse._SubParsersAction)
        for name in below.choices
    }
    assert _ACTIONS.keys() <= known


def test_a_word_that_means_nothing() -> None:
    assert verb_meant("xyzzy", VERBS) is None
    assert option_meant("--xyzzy", ["--delay"]) is None


def test_an_option_that_the_verb_lacks_is_not_suggested() -> None:
    assert option_meant("--after", ["--delay", "--due-from"]) == "--delay"
    assert option_meant("--after", ["--due-from"]) == "--due-from"
    assert option_meant("--after", ["--json"]) is None


def test_no_waiver_of_a_protection_is_suggested() -> None:
    waivers = ["--insecure", "--insecure-plain-token"]
    for word in ("--in", "--insecur", "--insecure-plain-tokn"):
        assert option_meant(word, waivers) is None


def test_the_tables_have_no_word_that_exists_and_only_names_that_do() -> None:
    known = set(options(make_parser()))
    assert _VERBS.keys() <= VERBS.keys() | known
    assert not set(" ".join(_VERBS.values()).split()) & VERBS.keys()
    assert _OPTIONS.keys() <= known
    words = " ".join(_VERBS.values()).split()
    assert len(words) == len(set(words)), "a word means one verb"

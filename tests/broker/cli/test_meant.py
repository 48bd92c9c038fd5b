"""The words that people try first, and what is suggested for them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from delaylog.broker.cli.meant import _OPTIONS, _VERBS, option_meant, verb_meant
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
        *(("sned", "send"), ("resch", "reschedule"), ("version", "--version")),
    ],
)
def test_verbs_by_meaning_then_by_spelling(word: str, verb: str) -> None:
    assert verb_meant(word, VERBS) == verb
    done = as_text(run_warm(word, "t", "x"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no verb {word!r}: did you mean {verb}? `delaylog --help`" in done.stderr


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

"""The command line as a whole: examples in every help, one spelling of each option."""

from __future__ import annotations

import argparse
import re
import shlex
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from delaylog.broker.cli.parser import make_parser
from delaylog.broker.cli.verbs import GROUPS, VERBS
from tests.starts.warm import as_text, run_warm


def parsers(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Each verb, or action of a verb, with its parser."""
    inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not inner:
        yield words, parser
    for each in inner:
        for name, below in each.choices.items():
            yield from parsers(below, (*words, name))


LEAVES = {words: each for words, each in parsers(make_parser()) if words != ("spark",)}
"""A job on Spark parses its own words."""


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_examples_end_the_help_and_can_be_parsed(words: tuple[str, ...]) -> None:
    text = LEAVES[words].format_help().partition("\nexamples:\n")[2]
    examples = text.splitlines()
    assert examples
    for line in examples:
        command = shlex.split(re.sub(r" [<>] .*", "", line.strip()))
        assert command[: len(words) + 1] == ["delaylog", *words]
        args = make_parser(words[0]).parse_args(command[1:])
        assert args.verb == words[0]


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_json_everywhere(words: tuple[str, ...]) -> None:
    options = {flag for each in LEAVES[words]._actions for flag in each.option_strings}
    # It prints a script.
    assert ("--json" in options) is (words != ("completion",))
    assert [each for each in options if each.endswith("-ms") and "limit" not in each] == []


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_verbs_that_call_a_broker_all_reach_it_alike(words: tuple[str, ...]) -> None:
    options = {flag for each in LEAVES[words]._actions for flag in each.option_strings}
    local = words in {("token", "generate"), ("cluster", "recover"), ("cluster", "certs")}
    calls = (VERBS[words[0]].calls and not local) or words == ("doctor", "broker")
    wanted = {"--url", "--token", "--token-file", "--ca-file", "--client-cert", "--client-key"}
    assert (wanted <= options) is calls


def test_an_option_means_the_same_everywhere() -> None:
    """One name for one member of a call, and one member for a name."""
    names: dict[str, set[str]] = defaultdict(set)
    for words, parser in LEAVES.items():
        if VERBS[words[0]].calls:
            for each in parser._actions:
                if each.option_strings and "--help" not in each.option_strings:
                    names[each.dest].add(each.option_strings[0])
    several = {dest: flags for dest, flags in names.items() if len(flags) > 1}
    # The limits that a topic may lose have a flag each.
    assert several == {"removed": {"--no-rate-limit", "--no-quota"}}


def test_a_time_before_now_is_no_option() -> None:
    before = make_parser("list").parse_args(["list", "t", "--due-from", "-1d"])
    assert before.due_from == pytest.approx(time.time() * 1000 - 86_400_000, abs=60_000)


def test_every_verb_stands_in_the_overview() -> None:
    done = as_text(run_warm("--help"))
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    for verb in VERBS.values():
        assert sum(line.split()[:1] == [verb.name] for line in lines) == 1, verb.name
    assert [line[:-1] for line in lines if line[:-1] in GROUPS] == list(GROUPS)

"""Random rules, given to the real redis-server and here: the same errors, lists and decisions.

Each set of rules is asked about a call of every command that both have, on keys and channels that
the patterns match or miss. Commands that every user of the broker may run are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import hiredis
import pytest

from delaylog.broker.keyspace.access.rights import check_rules, rights_of
from delaylog.broker.keyspace.access.rules import RuleError, parse_rules
from delaylog.broker.keyspace.command import CATEGORIES, DL_CATEGORIES, Command
from tests.broker.keyspace.access.calls import call_of, every_command, is_for_all
from tests.redis_reference import reference

KEYS = ["a", "b", "ab", "a1", "jobs:1", "jobs:", "[x]", "x", ""]
PATTERNS = ["a*", "*b", "?", "jobs:*", "[ab]*", "\\[x\\]", "a", "**", "j?bs:[0-9]"]
CHANNELS = ["news", "news:1", "other", "n*"]
WHOLE = [
    *("allcommands", "nocommands", "+@all", "-@all", "allkeys", "resetkeys", "~*", "ALLKEYS"),
    *("allchannels", "resetchannels", "&*", "+GET", "-@Read"),
]
SEEDS = range(40)


class Redis:
    """A connection to the reference."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._reader = hiredis.Reader()

    def ask(self, *calls: list[str]) -> list[Any]:
        """The replies to commands that are sent together; errors are values."""
        self._sock.sendall(b"".join(hiredis.pack_command(tuple(call)) for call in calls))
        replies = []
        for _ in calls:
            while (reply := self._reader.gets()) is False:
                self._reader.feed(self._sock.recv(1 << 16))
            replies.append(reply)
        return replies


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with reference() as server, server.connect() as sock:
        yield Redis(sock)


@pytest.fixture(scope="module")
def shared(redis: Redis) -> list[Command]:
    """The commands that rules concern and that both servers have."""
    mine = [each for each in every_command() if not is_for_all(each)]
    (known,) = redis.ask(["COMMAND", "INFO", *(each.name.decode() for each in mine)])
    return [each for each, there in zip(mine, known, strict=True) if there is not None]


def random_words(random: Random, shared: list[Command]) -> list[str]:
    """Words, most of them valid."""
    names = [command.name.decode() for command in shared]
    categories = [each for each in CATEGORIES if each not in DL_CATEGORIES]

    def word() -> str:
        kind = random.random()
        sign = random.choice("+-")
        if kind < 0.25:
            name = random.choice(names)
            return sign + (name if random.random() < 0.8 else name.partition("|")[0])
        if kind < 0.5:
            return f"{sign}@{random.choice(categories)}"
        if kind < 0.75:
            head = random.choice(["~", "~", "%R~", "%W~", "%RW~", "%r~"])
            return head + random.choice(PATTERNS)
        if kind < 0.85:
            return "&" + random.choice(["n*", "news", "*1", "other"])
        if kind < 0.97:
            return random.choice(WHOLE)
        return random.choice(
            ["frob", "%x~a", "%~a", "+nosuch", "+@nosuch", "~a b", "-config|nosuch"]
        )

    return [word() for _ in range(random.randint(1, 8))]


def refusal(words: tuple[str, ...]) -> str | None:
    """Why words are refused here; None = they are not."""
    try:
        check_rules(words)
    except RuleError as error:
        return error.why
    return None


def decided(words: list[str], calls: list[tuple[Command, list[str]]]) -> list[bytes]:
    """What ACL DRYRUN replies here."""
    rights = rights_of(tuple(words))
    out = []
    for command, argv in calls:
        denied = rights.denied(command, [word.encode() for word in argv])
        out.append(b"OK" if denied is None else denied.dry)
    return out


@pytest.mark.processes
@pytest.mark.parametrize("seed", SEEDS)
def test_random_rules(redis: Redis, shared: list[Command], seed: int) -> None:
    random = Random(seed)
    given, words = random_words(random, shared), []
    redis.ask(["ACL", "DELUSER", "u"], ["ACL", "SETUSER", "u", "on"])
    for word in given:
        (reply,) = redis.ask(["ACL", "SETUSER", "u", word])
        why = refusal((*words, word))
        if why is None:
            assert reply == b"OK", word
            words.append(word)
        else:
            assert str(reply) == f"ERR Error in ACL SETUSER modifier '{word}': {why}"
    (flat,) = redis.ask(["ACL", "GETUSER", "u"])
    shown = dict(zip(flat[::2], flat[1::2], strict=True))
    rules = parse_rules(words)
    assert shown[b"keys"].decode() == " ".join(map(str, rules.keys)), words
    assert shown[b"channels"].decode() == " ".join(f"&{each}" for each in rules.channels), words
    calls = []
    for command in shared:
        for _ in range(2):
            argv = call_of(command, lambda: random.choice(KEYS))
            if command.name in (b"publish", b"subscribe", b"psubscribe"):
                argv[1:2] = [random.choice(CHANNELS)]
            if command.name == b"set" and random.random() < 0.5:
                argv.append("GET")
            calls.append((command, argv))
    real = redis.ask(*(["ACL", "DRYRUN", "u", *argv] for _, argv in calls))
    for (_, argv), here, there in zip(calls, decided(words, calls), real, strict=True):
        assert here == there, (words, argv)


@pytest.mark.processes
def test_the_use_of_each_key(redis: Redis, shared: list[Command]) -> None:
    """Each key of each command: whether it needs permission to read, to write, or neither."""
    calls = [(each, call_of(each, iter(f"k{n}" for n in range(9)).__next__)) for each in shared]
    for rules in (["%R~k0"], ["%W~k0"], ["~k0"], ["%R~k1", "~k0"], ["%W~k1", "~k0"], ["%R~*"]):
        words = ["+@all", "&*", *rules]
        redis.ask(["ACL", "SETUSER", "u", "reset", *words])
        real = redis.ask(*(["ACL", "DRYRUN", "u", *argv] for _, argv in calls))
        for (_, argv), here, there in zip(calls, decided(words, calls), real, strict=True):
            assert here == there, (words, argv)

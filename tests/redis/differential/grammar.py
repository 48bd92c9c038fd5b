"""Forms of commands as text, and the strategies of Hypothesis that they mean.

One form a line, options in the order in which a person would read them:

    4 * SET key value {NX|XX|GET|EX ttl|KEEPTTL}

    WORD, "word"   itself                     name         a value of the pool of that name
    [a b]          perhaps                    (a|b)        one of these
    x...           one to four times          {a|b|c}      up to three of these, any order, repeats
    4 *            four times as likely as others

About one command in seven is then spoilt (`spoil`), so that the answers to wrong words, wrong
numbers and wrong arities are compared too. Simple things come first in each pool: Hypothesis
shrinks towards them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.redis.differential.resp import Argv

Words = SearchStrategy[Argv]

_TOKEN = re.compile(r'"[^"]*"\.*|\.\.\.|[\[\](){}|]|[^\s\[\](){}|]+?(?=\.\.\.)|[^\s\[\](){}|]+')
_NOTHING: Words = st.just(())
_NAMES = re.compile(r"[A-Za-z_]+")
_FORM = re.compile(r"(?:(\d+) \* )?(.+)")


class Form:
    """One line: which command, how often, and its strategy."""

    def __init__(self, text: str, pools: Mapping[str, Words]) -> None:
        match = _FORM.match(text)
        assert match is not None, text
        self.text = match[2]
        self.weight = int(match[1] or 1)
        self.names = [name.encode() for name in _NAMES.findall(self.text.split(")")[0])[:9]]
        if not self.text.startswith("("):
            self.names = self.names[:1]
        self.name = self.names[0]
        self.blocks = bool(re.search(r"\bB[LRZ]|BLOCK", self.text))
        self.is_delicate = bool(re.search(r"\b(p?ttl|p?at)\b|CLIENT KILL", self.text))
        self.words = _Reader(self.text, pools).whole()


def forms(path: Path, pools: Mapping[str, Words]) -> list[Form]:
    """The forms of a file; lines of `#` and empty ones are for people, `@name` includes a file."""
    found = []
    for line in path.read_text().splitlines():
        line = line.strip()
        if line.startswith("@"):
            found += forms(path.parent / f"{line[1:]}.txt", pools)
        elif line and not line.startswith("# ") and line != "#":
            found.append(Form(line, pools))
    return found


def commands(chosen: Sequence[Form], *, spoilt: bool = True) -> Words:
    """Any command of these forms, some of them spoilt, but none that would wait for ever."""
    how, gently = (st.sampled_from(deck).flatmap(lambda spoil: spoil) for deck in (_HOW, _GENTLY))
    deck = []
    for form in chosen:
        words = form.words
        if spoilt and not form.blocks:
            spoils = gently if form.is_delicate else how
            words = st.builds(lambda argv, spoil: spoil(argv), words, spoils)
        deck += [words] * form.weight
    return st.sampled_from(deck).flatmap(lambda words: words)


class _Reader:
    """Recursive descent over the tokens of one form."""

    def __init__(self, text: str, pools: Mapping[str, Words]) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._pools = pools

    def whole(self) -> Words:
        words = self._sequence()
        assert not self._tokens, self._text
        return words

    def _peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _sequence(self) -> Words:
        parts = []
        while self._peek() not in ("", "]", ")", "}", "|"):
            parts.append(self._item())
        if len(parts) == 1:
            return parts[0]
        return st.tuples(*parts).map(_joined)

    def _choices(self, close: str) -> list[Words]:
        found = [self._sequence()]
        while self._peek() == "|":
            self._tokens.pop(0)
            found.append(self._sequence())
        assert self._tokens.pop(0) == close, self._text
        return found

    def _item(self) -> Words:
        token = self._tokens.pop(0)
        if token == "[":
            item = st.one_of(_NOTHING, *self._choices("]"))
        elif token == "(":
            item = st.one_of(*self._choices(")"))
        elif token == "{":
            item = st.lists(st.one_of(*self._choices("}")), max_size=3).map(_joined)
        elif token.startswith('"'):
            item = st.just((token.strip('"').encode(),))
        elif token in self._pools:
            item = self._pools[token]
        else:
            assert not re.fullmatch(r"[a-z_]+", token), f"{self._text}: no pool {token}"
            item = st.just((token.encode(),))
        if self._peek() == "...":
            self._tokens.pop(0)
            item = st.lists(item, min_size=1, max_size=4).map(_joined)
        return item


def _joined(parts: Sequence[Argv]) -> Argv:
    return tuple(word for part in parts for word in part)


JUNK = [
    *(b"0", b"1", b"-1", b"", b"x", b"1.5", b"-0", b"00", b"+1", b" 1", b"1 ", b"0x10", b"1e3"),
    *(b"nan", b"inf", b"-inf", b"(1", b"[a", b"-", b"+", b"*", b"$", b"1-1", b"\xff\x00", b"1_0"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808"),
    *(b"18446744073709551615", b"NX", b"XX", b"GET", b"LIMIT", b"COUNT", b"WITHSCORES", b"EX"),
]
"""What takes the place of a word. No number here makes a server fill its memory."""

_Spoil = Callable[[Argv], Argv]


def _spoils(*, gently: bool) -> list[SearchStrategy[_Spoil]]:
    """Gently: no word becomes a time to live so short that it ends between two replies, or the
    number of a client, which would end a session of the tests on one side.
    """
    where = st.integers(0, 9)
    junk = st.sampled_from([word for word in JUNK if not (gently and word == b"1")])
    keep: SearchStrategy[_Spoil] = st.just(lambda argv: argv)
    spoils: list[SearchStrategy[_Spoil]] = [
        where.map(lambda at: lambda argv: _without(argv, at)),
        st.just(lambda argv: argv[:-1] or argv),
        junk.map(lambda word: lambda argv: (*argv, word)),
        st.builds(lambda at, word: lambda argv: _replaced(argv, at, word), where, junk),
        st.builds(lambda at, word: lambda argv: _replaced(argv, at, word), where, junk),
        where.map(lambda at: lambda argv: argv if gently else _swapped(argv, at)),
        st.just(lambda argv: (argv[0].lower(), *argv[1:])),
        st.just(lambda argv: tuple(word.lower() for word in argv)),
    ]
    return [keep] * (6 * len(spoils)) + spoils


def _at(argv: Argv, at: int) -> int:
    return 1 + at % (len(argv) - 1)


def _without(argv: Argv, at: int) -> Argv:
    return argv if len(argv) < 2 else argv[: _at(argv, at)] + argv[_at(argv, at) + 1 :]


def _replaced(argv: Argv, at: int, word: bytes) -> Argv:
    if len(argv) < 2:
        return argv
    return (*argv[: _at(argv, at)], word, *argv[_at(argv, at) + 1 :])


def _swapped(argv: Argv, at: int) -> Argv:
    if len(argv) < 3:
        return argv
    at = 1 + at % (len(argv) - 2)
    return (*argv[:at], argv[at + 1], argv[at], *argv[at + 2 :])


_HOW, _GENTLY = _spoils(gently=False), _spoils(gently=True)

"""Rules of a user in the words of ACL SETUSER, as Redis 7.0.15 reads them.

    +get -config|set +@read -@dangerous      commands, subcommands, categories; the last word wins
    ~jobs:* %R~shared:* %W~log:*             patterns of keys: read and write, read, write
    &news:*                                  patterns of channels
    allcommands nocommands allkeys resetkeys allchannels resetchannels

Verbs of the delay log (DL.*) are allowed by category only, because the rights on topics that follow
from a rule (`of_topics`) hold for all faces of the broker. Selectors are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from delaylog.broker.keyspace.command import CATEGORIES, DL_CATEGORIES

WORDS_MAX: Final = 256
BYTES_MAX: Final = 8 << 10
"""Limit of all words together: each key pattern is compiled to a matcher."""
_SPACES: Final = " \t\n\v\f\r"
_ALL: Final = {"allcommands": "+@all", "nocommands": "-@all"}


class RuleError(Exception):
    """A word is not valid; `word` is the word, `why` what is wrong with it."""

    def __init__(self, word: str, why: str) -> None:
        super().__init__(f"{word[:100]!a}: {why}")
        self.word = word
        self.why = why


SYNTAX: Final = "Syntax error"
UNKNOWN: Final = "Unknown command or category name in ACL"
_AFTER_ALL: Final = (
    "Adding a pattern after the * pattern (or the '{0}' flag) is not valid and does not have any "
    "effect. Try '{1}' to start with an empty list of {2}"
)


class KeyPattern(NamedTuple):
    """A pattern of keys, and what a user may do with them."""

    pattern: str
    reads: bool = True
    writes: bool = True

    def __str__(self) -> str:
        if self.reads and self.writes:
            return f"~{self.pattern}"
        return f"%{'R' if self.reads else 'W'}~{self.pattern}"


ALL_KEYS: Final = KeyPattern("*")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a user. Without any, it may run no command, and use no key and no channel."""

    commands: tuple[str, ...] = ()
    """Words for commands, in order. A word that a later one makes ineffective is left out."""
    keys: tuple[KeyPattern, ...] = ()
    channels: tuple[str, ...] = ()
    """Patterns."""

    @property
    def all_keys(self) -> bool:
        """Whether every key may be read and written."""
        return ALL_KEYS in self.keys

    @property
    def all_channels(self) -> bool:
        """Whether every channel may be used."""
        return "*" in self.channels

    @property
    def words(self) -> tuple[str, ...]:
        """The rules as words that `parse_rules` reads."""
        return (*self.commands, *map(str, self.keys), *(f"&{each}" for each in self.channels))

    def with_word(self, word: str) -> Rules:
        """These rules, changed by one more word. Raises RuleError."""
        lower = word.lower()
        if lower in _ALL or lower in ("+@all", "-@all"):
            all_or_none = _ALL.get(lower, lower)
            return replace(self, commands=() if all_or_none == "-@all" else (all_or_none,))
        if lower in ("allkeys", "~*"):
            return replace(self, keys=(ALL_KEYS,))
        if lower == "resetkeys":
            return replace(self, keys=())
        if lower in ("allchannels", "&*"):
            return replace(self, channels=("*",))
        if lower == "resetchannels":
            return replace(self, channels=())
        if word[:1] in ("+", "-"):
            return replace(self, commands=_with_command(self.commands, lower))
        if word[:1] in ("~", "%"):
            return self._with_key(word)
        if word[:1] == "&":
            return self._with_channel(word)
        if word[:1] == "(":
            raise RuleError(word, "selectors are not supported; give the rules without brackets")
        raise RuleError(word, SYNTAX)

    def _with_key(self, word: str) -> Rules:
        if self.all_keys:
            raise RuleError(word, _AFTER_ALL.format("allkeys", "resetkeys", "patterns"))
        head, tilde, pattern = word.partition("~")
        kinds = head[1:].upper()
        if not tilde or _has_space(pattern):
            raise RuleError(word, SYNTAX)
        if head and kinds not in ("R", "W", "RW", "WR"):
            raise RuleError(word, SYNTAX)
        new = KeyPattern(pattern, not head or "R" in kinds, not head or "W" in kinds)
        if new == ALL_KEYS:
            return replace(self, keys=(ALL_KEYS,))
        keys = list(self.keys)
        for at, old in enumerate(keys):
            if old.pattern == pattern:
                keys[at] = KeyPattern(pattern, old.reads or new.reads, old.writes or new.writes)
                return replace(self, keys=tuple(keys))
        return replace(self, keys=(*keys, new))

    def _with_channel(self, word: str) -> Rules:
        if self.all_channels:
            raise RuleError(word, _AFTER_ALL.format("allchannels", "resetchannels", "channels"))
        pattern = word[1:]
        if _has_space(pattern):
            raise RuleError(word, SYNTAX)
        if pattern in self.channels:
            return self
        return replace(self, channels=(*self.channels, pattern))


NO_RULES: Final = Rules()
ALL_WORDS: Final = ("+@all", "~*", "&*")
"""The rules of a user who may do everything."""


def parse_rules(words: Iterable[str]) -> Rules:
    """Parse words. Command names are not looked up: see `rights.check_rules`. Raises RuleError."""
    rules = NO_RULES
    for word in words:
        rules = rules.with_word(word)
    return rules


def parse_known(words: Iterable[str]) -> Rules:
    """Parse stored words. A word that this release does not know allows nothing; if it forbids
    something, no command is allowed, since this release may have some of those commands.
    """
    rules = NO_RULES
    for word in words:
        try:
            rules = rules.with_word(word)
        except RuleError:
            if word[:1] == "-":
                rules = replace(rules, commands=())
    return rules


def of_topics(rules: Rules) -> list[tuple[str, tuple[KeyPattern, ...]]]:
    """The allowed categories of the delay log, each with the key patterns, which name topics.

    A category that reads needs a pattern that may be read, any other one that may be written.
    """
    found = []
    for category in DL_CATEGORIES:
        last = next(
            (word for word in reversed(rules.commands) if word[1:] in ("@all", f"@{category}")), "-"
        )
        if last[0] == "+":
            reads = category == "dlread"
            patterns = tuple(key for key in rules.keys if (key.reads if reads else key.writes))
            found.append((category, patterns))
    return found


def _with_command(commands: tuple[str, ...], word: str) -> tuple[str, ...]:
    """The words for commands with one more; an earlier one about the same commands is dropped."""
    name = word[1:]
    if name.startswith("@"):
        if name[1:] not in CATEGORIES:
            raise RuleError(word, UNKNOWN)
    elif name.startswith("dl."):
        raise RuleError(
            word,
            "commands of the delay log are allowed by category: "
            + " ".join(f"@{category}" for category in DL_CATEGORIES),
        )
    kept = [each for each in commands if each[1:] != name and not each[1:].startswith(f"{name}|")]
    return (*kept, word)


def _has_space(pattern: str) -> bool:
    return any(char in _SPACES or char == "\0" for char in pattern)

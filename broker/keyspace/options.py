"""Parses the options after a command's positional arguments, by a table that the command declares.

The table maps each word to an `Option`: its slot, the reader of its values, and their number. Words
with the same slot exclude each other. A word may be repeated unless it has `once`; its last value
counts. Values are read in order, since the first invalid one decides the error.

    read_options(argv, 3, {b"nx": Option("when"), b"ex": Option("expiry", to_int), ...})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, to_int


class Option(NamedTuple):
    """The declaration of a word: the slot it fills, and the values that follow it."""

    slot: str
    read: Callable[[bytes], Any] | None = None
    """Parses a value; None: no value follows."""
    values: int = 1
    """The number of values; several are read into a list."""
    once: bool = False
    """Whether a repetition is refused."""


Options: TypeAlias = Mapping[bytes, Option]
_NOT_KNOWN: Final = Option("")


class Found(dict[str, tuple[bytes, Any]]):
    """Maps a slot to the word that was given, in lower case, and its value."""

    end = 0
    """The index in argv behind the last option."""

    def word(self, slot: str) -> bytes:
        """The word that was given; empty if there was none."""
        return self[slot][0] if slot in self else b""

    def value(self, slot: str, default: Any = None) -> Any:
        """The value of the word; `default` if none was given."""
        return self[slot][1] if slot in self else default


def _syntax(word: bytes) -> CommandError:  # noqa: ARG001
    return syntax()


def read_options(
    argv: Args,
    first: int,
    options: Options,
    refused: Callable[[bytes], CommandError] = _syntax,
    *,
    end: bytes | None = None,
) -> Found:
    """The options from `argv[first]` up to the word `end`; `options` has lower-case words.

    `refused` makes the error of a word that is unknown or lacks a value. Raises CommandError.
    """
    found = Found()
    at, count = first, len(argv)
    while at < count and (word := argv[at].lower()) != end:
        option = options.get(word, _NOT_KNOWN)
        slot, read, values = option.slot, option.read, option.values
        if not slot or (slot in found and (option.once or found[slot][0] != word)):
            raise refused(argv[at])
        value = None
        if read is not None:
            if at + values >= count:
                raise refused(argv[at])
            given = argv[at + 1 : at + 1 + values]
            at += values
            value = read(given[0]) if values == 1 else list(map(read, given))
        found[slot] = (word, value)
        at += 1
    found.end = at
    return found


def at_least(
    least: int, refusal: bytes, most: int = INT64_MAX, *, malformed: bytes | None = None
) -> Callable[[bytes], int]:
    """A reader of integers from `least` to `most`. It refuses other integers with `refusal`, and
    what is no integer with `malformed`, by default the same text.
    """

    def read(text: bytes) -> int:
        number = to_int(text, malformed or refusal)
        if not least <= number <= most:
            raise CommandError(refusal)
        return number

    return read


take_positive: Final = at_least(0, b"ERR value is out of range, must be positive")
"""Parses the count of a pop. Raises CommandError."""

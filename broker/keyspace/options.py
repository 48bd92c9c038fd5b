"""Parses the options after a command's positional arguments, by a table that the command declares.

The table maps each word to a slot and to the reader of its value, None for a word without a value.
Of the words that share a slot only one may be given; if it is repeated, its last value counts.
Values are read in order, since the first wrong one decides which error is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from delaylog.broker.keyspace.errors import syntax
from delaylog.broker.keyspace.registry import Args

Options: TypeAlias = Mapping[bytes, tuple[str, Callable[[bytes], Any] | None]]
Found: TypeAlias = dict[str, tuple[bytes, Any]]
"""Slot to the word that was given and its value."""
_NOT_KNOWN: Final = ("", None)


def read_options(argv: Args, first: int, options: Options) -> Found:
    """The options from `argv[first]` on; `options` has lower-case words. Raises CommandError."""
    found: Found = {}
    words = iter(argv[first:])
    for text in words:
        word = text.lower()
        slot, read = options.get(word, _NOT_KNOWN)
        if not slot or found.get(slot, (word,))[0] != word:
            raise syntax()
        value = None
        if read is not None:
            if (given := next(words, None)) is None:
                raise syntax()
            value = read(given)
        found[slot] = (word, value)
    return found

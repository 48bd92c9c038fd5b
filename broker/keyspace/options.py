"""Options behind the plain arguments of a command, by a table that the command declares.

The table names for each word a slot, and what reads its value if it has one. Of words that share a
slot only one may be given; the last of its values counts. Values are read as they come, since the
first wrong word decides which error is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from delaylog.broker.keyspace.errors import syntax
from delaylog.broker.keyspace.registry import Args

Options: TypeAlias = Mapping[bytes, tuple[str, Callable[[bytes], Any] | None]]
Found: TypeAlias = dict[str, tuple[bytes, Any]]
"""By slot the word that was given, and its value."""
_NOT_KNOWN: Final = ("", None)


def read_options(argv: Args, first: int, options: Options) -> Found:
    """The options from `argv[first]` on. Raises CommandError."""
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

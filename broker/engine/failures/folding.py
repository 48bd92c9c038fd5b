"""Reasons with numbers and ids folded, so that failures of one kind are one group.

Exceptions quote what they failed at: `ValueError: cannot parse 10004` and `… 10005` are both
`ValueError: cannot parse #`. The class in front of the first colon is kept as it is, so two classes
are never one group.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

FOLDED: Final = "#"
"""What a number or an id becomes."""
LOOKED_AT: Final = 200
"""Characters of a reason that are folded: its beginning says which kind of failure it is."""
_CLASS: Final = re.compile(r"(?:\w+(?:\.|::|\\|/))*[A-Z][\w$-]*(?=:|\Z)")
"""The class of an error, as languages write it: its last name begins with a capital letter."""
_VARYING: Final = re.compile(
    r"""
    0[xX][0-9a-fA-F]+                                      # an address of memory
    | (?<![0-9A-Za-z])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![0-9A-Za-z])  # UUID
    | (?<![0-9A-Za-z])(?=[A-Fa-f]*[0-9])[0-9a-fA-F]{8,}(?![0-9A-Za-z])      # a hash, an id in hex
    | (?<![0-9A-Za-z])(?=[A-Za-z]*[0-9])[0-9A-Za-z]{20,}(?![0-9A-Za-z])     # ULID, KSUID and others
    | (?:(?<![\w-])[+-])?\d+(?:[.,:]\d+)*(?:[eE][+-]?\d+)?     # a number, a time of day, an address
    """,
    re.VERBOSE,
)


class Folded(NamedTuple):
    """The kind of a reason."""

    text: str
    """The reason with numbers and ids folded."""
    prefix: str
    """What all reasons of the kind begin with."""


def fold(reason: str) -> Folded:
    """Fold a reason: equal texts are reasons of one kind."""
    head = reason[:LOOKED_AT]
    named = _CLASS.match(head)
    first = named.end() if named else 0
    found = _VARYING.search(head, first)
    if found is None and head == reason:
        return Folded(reason, reason)
    text = head[:first] + _VARYING.sub(FOLDED, head[first:])
    prefix = head[: found.start()] if found else head
    return Folded(text if head == reason else f"{text}…", prefix)

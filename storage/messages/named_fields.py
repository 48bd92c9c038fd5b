"""The fields of a value as members of a msgpack map, by one table for both ways."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, itemgetter
from typing import Any


class NamedFields:
    """Which member of a map stands for which field of a value."""

    def __init__(self, **fields: str) -> None:
        """By member, in the order of the map; two at least."""
        self._members = tuple(fields)
        self._fields = tuple(fields.values())
        self._read = attrgetter(*self._fields)
        self._pick = itemgetter(*self._members)

    def pack(self, value: object) -> dict[str, Any]:
        """The members of a value's fields."""
        return dict(zip(self._members, self._read(value), strict=True))

    def unpack(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """The fields by name; each must be there."""
        return dict(zip(self._fields, self._pick(members), strict=True))

    def fill(self, value: object, members: Mapping[str, Any]) -> None:
        """Give a value its fields."""
        for name, field in zip(self._fields, self._pick(members), strict=True):
            setattr(value, name, field)

"""The fields of a value as members of a msgpack map: one table for packing and unpacking."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, itemgetter
from typing import Any


class NamedFields:
    """A table of the members of a map and the fields of a value that they contain."""

    def __init__(self, **fields: str) -> None:
        """`fields` = member=field, in the order of the map; at least two."""
        self._members = tuple(fields)
        self._fields = tuple(fields.values())
        self._read = attrgetter(*self._fields)
        self._pick = itemgetter(*self._members)

    def pack(self, value: object) -> dict[str, Any]:
        """The members for the fields of `value`."""
        return dict(zip(self._members, self._read(value), strict=True))

    def unpack(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """The fields by name; every member must be present."""
        return dict(zip(self._fields, self._pick(members), strict=True))

    def fill(self, value: object, members: Mapping[str, Any]) -> None:
        """Set the fields of `value` from `members`."""
        for name, field in zip(self._fields, self._pick(members), strict=True):
            setattr(value, name, field)

"""Dataclasses from the members of JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def read_members(kind: type[T], shape: Mapping[str, Any], **made: Any) -> T:
    """Build a dataclass from JSON members of the same names; `made` has the converted fields.

    Members whose field has a default may be absent. Raises KeyError for another one.
    """
    of: Any = kind
    for name, is_needed in _members_of(of):
        if name not in made and (is_needed or name in shape):
            made[name] = shape[name]
    return kind(**made)


@cache
def _members_of(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The names of a dataclass's fields, and whether a value is needed."""
    return tuple(
        (each.name, each.default is MISSING and each.default_factory is MISSING)
        for each in fields(kind)
    )

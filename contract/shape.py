"""Shapes: objects of declared members, checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delaylog.contract.errors import MemberError, MemberTypeError
from delaylog.contract.members import Member, Schema, bound, limit_note


class Shape:
    """An object of declared members; unknown members are refused."""

    def __init__(
        self,
        title: str,
        *members: Member[Any],
        doc: str = "the body",
        rules: Schema | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> None:
        self.title = title
        self.doc = doc
        self.members = members
        self.names = frozenset(member.name for member in members)
        self._rules = rules or {}
        """Schema keywords beyond the members, such as `required`."""
        self._hints = hints or {}
        """Members that people expect, and what to do instead."""
        self._absent = {each.name: each.take({}) for each in members}
        self._takes = {each.name: each.take for each in members}
        self.required: Sequence[str] = self._rules.get("required", ())

    def check(self, members: Any, item: int | None = None) -> dict[str, Any]:
        """Check that it is an object without unknown members; its values are not checked here."""
        if not isinstance(members, dict):
            raise MemberTypeError(f"{self.doc} must be an object", item=item)
        if not members.keys() <= self.names:
            name = next(name for name in members if name not in self.names)
            names = ", ".join(sorted(self.names))
            known = f"known are {names}" if names else f"{self.doc} has no members"
            known = self._hints.get(name, known)
            raise MemberError(f"unknown member {name!r}; {known}", field=str(name)[:64], item=item)
        return members

    def take(self, members: Any, limits: object = None, item: int | None = None) -> dict[str, Any]:
        """All members, each checked; an absent one is None or has its default."""
        given = members
        if type(members) is not dict or not members.keys() <= self.names:
            given = self.check(members, item)
        for name in self.required:
            if given.get(name) is None:
                raise MemberError(f"{name} is missing", field=name, item=item)
        values, takes = dict(self._absent), self._takes
        try:
            for name in given:
                values[name] = takes[name](given, limits, item)
        except MemberError:
            # Which of several faults is told does not depend on their order in the request.
            for each in self.members:
                each.take(given, limits, item)
            raise
        return values

    def schema(self, limits: object) -> Schema:
        """Its JSON schema."""
        return {
            "type": "object",
            "title": self.title,
            "properties": {member.name: member.schema(limits) for member in self.members},
            "additionalProperties": False,
            **self._rules,
        }


@dataclass(frozen=True, slots=True)
class Nested(Member[dict[str, Any]]):
    """An object of declared members."""

    shape: Shape

    def check(self, value: Any, limits: object = None, item: int | None = None) -> dict[str, Any]:
        """The members that are present, each checked."""
        if not isinstance(value, Mapping):
            raise self.wrong_type("an object", value, item)
        members = self.shape.check(dict(value), item)
        taken = {}
        for each in self.shape.members:
            try:
                part = each.take(members, limits, item)
            except MemberError as error:
                what = f"{each.name} {error.what}"
                detail = f"{self.name}.{what}"
                raise type(error)(detail, field=each.name, item=item, what=what) from None
            if part is not None:
                taken[each.name] = part
        return taken

    def _kind(self, limits: object) -> Schema:
        return {**self.shape.schema(limits), "type": ["object", "null"]}


@dataclass(frozen=True, slots=True)
class ObjectList(Member[list[dict[str, Any]]]):
    """A list of objects of declared members; the caller checks their values."""

    shape: Shape
    count_max: int | str

    def check(
        self, value: Any, limits: object = None, item: int | None = None
    ) -> list[dict[str, Any]]:
        """The objects."""
        if not isinstance(value, list):
            raise self.wrong_type("a list of objects", value, item)
        most = bound(self.count_max, limits)
        if len(value) > most:
            count = f"{len(value)}{limit_note(self.count_max)}"
            raise self.wrong(f"must have at most {most} objects, not {count}", item)
        return [self.shape.check(each, at) for at, each in enumerate(value)]

    def _kind(self, limits: object) -> Schema:
        return {
            "type": ["array", "null"],
            "items": self.shape.schema(limits),
            "maxItems": bound(self.count_max, limits),
        }

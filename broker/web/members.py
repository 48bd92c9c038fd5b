"""Members of requests: each declared once, which both checks what comes and documents it.

A declaration has `take`, which reads the member of untrusted values or raises a Problem that names
it, and `schema`, its JSON schema for the OpenAPI document. A member that is null counts as absent.
Bounds may be the name of a limit.
"""

from __future__ import annotations

import base64
import binascii
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from delaylog.broker.engine.limits import Limits
from delaylog.broker.web.problems import Problem

INT64_MAX: Final = 2**63 - 1
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}\Z")
Values: TypeAlias = Mapping[str, Any]
Schema: TypeAlias = dict[str, Any]


def bound(value: int | str, limits: Limits) -> int:
    """A bound, or the limit of that name."""
    return value if isinstance(value, int) else int(getattr(limits, value))


@dataclass(frozen=True, slots=True)
class Member(ABC):
    """What all declarations have."""

    name: str
    doc: str

    def schema(self, limits: Limits) -> Schema:
        """Its JSON schema under these limits."""
        return {"description": self.doc, **self._kind(limits)}

    @abstractmethod
    def _kind(self, limits: Limits) -> Schema:
        """What kind of value it has, as JSON schema."""

    def wrong(self, what: str, item: int | None) -> Problem:
        """The refusal of a value."""
        return Problem("bad_request", f"{self.name} {what}", field=self.name, item=item)


@dataclass(frozen=True, slots=True)
class Int(Member):
    """A whole number."""

    low: int | str
    high: int | str

    def take(self, members: Values, limits: Limits, item: int | None = None) -> int | None:
        """The number, None when absent."""
        value = members.get(self.name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong("must be an integer", item)
        low, high = bound(self.low, limits), bound(self.high, limits)
        if not low <= value <= high:
            raise self.wrong(f"must lie from {low} to {high}, not {value}", item)
        return value

    def _kind(self, limits: Limits) -> Schema:
        return {
            "type": ["integer", "null"],
            "minimum": bound(self.low, limits),
            "maximum": bound(self.high, limits),
        }


@dataclass(frozen=True, slots=True)
class IntOrText(Member):
    """A number, or a name instead."""

    low: int
    high: int

    def take(self, members: Values, item: int | None = None) -> int | str | None:
        """Either, None when absent."""
        value = members.get(self.name)
        if value is None or (isinstance(value, (int, str)) and not isinstance(value, bool)):
            return value
        raise self.wrong("must be an integer or text", item)

    def _kind(self, _limits: Limits) -> Schema:
        return {"type": ["integer", "string", "null"], "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Number(Member):
    """A number, whole or not."""

    low: float
    high: float

    def take(self, members: Values, item: int | None = None) -> float | None:
        """The number, None when absent."""
        value = members.get(self.name)
        if value is None:
            return None
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.wrong("must be a number", item)
        # What is no number at all (NaN) lies nowhere.
        if not self.low <= value <= self.high:
            raise self.wrong(f"must lie from {self.low} to {self.high}, not {value}", item)
        return value

    def _kind(self, _limits: Limits) -> Schema:
        return {"type": ["number", "null"], "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class QueryInt(Int):
    """The same as a query parameter."""

    default: int = 0

    def take(self, members: Values, limits: Limits, item: int | None = None) -> int:
        """The number."""
        text = members.get(self.name)
        if text is None:
            return self.default
        # Python reads "1_0", " 1" and other scripts' digits as numbers too.
        if not _WHOLE.match(text):
            raise self.wrong("must be an integer", item)
        return Int.take(self, {self.name: int(text)}, limits, item) or 0

    def _kind(self, limits: Limits) -> Schema:
        return {**Int._kind(self, limits), "type": "integer", "default": self.default}


@dataclass(frozen=True, slots=True)
class Text(Member):
    """A text, as UTF-8 bytes."""

    bytes_max: int | None = None
    pattern: str | None = None
    """What a legal text looks like, for the document; whoever takes the text checks it."""

    def take(self, members: Values, item: int | None = None) -> bytes | None:
        """The text, None when absent."""
        value = members.get(self.name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong("must be text", item)
        try:
            raw = value.encode()
        except UnicodeEncodeError:
            raise self.wrong("must be valid Unicode", item) from None
        if self.bytes_max is not None and len(raw) > self.bytes_max:
            raise self.wrong(f"has at most {self.bytes_max} bytes", item)
        return raw

    def _kind(self, _limits: Limits) -> Schema:
        kind: Schema = {"type": ["string", "null"]}
        if self.bytes_max is not None:
            kind["maxLength"] = self.bytes_max
        if self.pattern is not None:
            kind["pattern"] = self.pattern
        return kind


@dataclass(frozen=True, slots=True)
class Base64(Member):
    """Bytes as base64 text."""

    def take(self, members: Values, item: int | None = None) -> bytes | None:
        """The bytes, None when absent."""
        value = members.get(self.name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong("must be text", item)
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self.wrong("is not base64", item) from None

    def _kind(self, _limits: Limits) -> Schema:
        return {"type": ["string", "null"], "contentEncoding": "base64"}


@dataclass(frozen=True, slots=True)
class Flag(Member):
    """True or false."""

    default: bool = False

    def take(self, members: Values) -> bool:
        """The flag."""
        value = members.get(self.name)
        if value is None:
            return self.default
        if not isinstance(value, bool):
            raise self.wrong("is true or false", None)
        return value

    def _kind(self, _limits: Limits) -> Schema:
        return {"type": ["boolean", "null"], "default": self.default}


@dataclass(frozen=True, slots=True)
class QueryFlag(Flag):
    """The same as a query parameter; named without a value it is true."""

    def take(self, members: Values) -> bool:
        """The flag."""
        text = members.get(self.name)
        if text is None:
            return self.default
        known = {"true": True, "1": True, "": True, "false": False, "0": False}
        if text.lower() not in known:
            raise self.wrong("is true or false", None)
        return known[text.lower()]

    def _kind(self, _limits: Limits) -> Schema:
        return {"type": "boolean", "default": self.default}


@dataclass(frozen=True, slots=True)
class Choice(Member):
    """One of a few words."""

    words: tuple[str, ...]

    def take(self, members: Values, item: int | None = None) -> str | None:
        """The word, None when absent."""
        value = members.get(self.name)
        if value is None:
            return None
        if not isinstance(value, str) or value not in self.words:
            raise self.wrong(f"must be one of {', '.join(self.words)}", item)
        return value

    def _kind(self, _limits: Limits) -> Schema:
        return {"enum": [*self.words, None]}


@dataclass(frozen=True, slots=True)
class QueryWords(Member):
    """Some of a few words, as a query parameter: separated by commas."""

    words: tuple[str, ...]

    def take(self, members: Values) -> frozenset[str]:
        """The words; all of them when absent."""
        text = members.get(self.name)
        if text is None:
            return frozenset(self.words)
        found = frozenset(text.split(","))
        if not found <= set(self.words):
            raise self.wrong(f"names some of {', '.join(self.words)}, with commas between", None)
        return found

    def _kind(self, _limits: Limits) -> Schema:
        word = f"({'|'.join(self.words)})"
        return {"type": "string", "pattern": f"^{word}(,{word})*$"}


@dataclass(frozen=True, slots=True)
class TextList(Member):
    """A list of texts."""

    count_min: int
    count_max: int | str
    words: tuple[str, ...] | None = None
    """The only texts that are known, if they are."""
    pattern: str | None = None
    length_max: int | None = None

    def take(self, members: Values, limits: Limits, item: int | None = None) -> list[str] | None:
        """The texts, None when absent."""
        value = members.get(self.name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong("must be a list of texts", item)
        for at, text in enumerate(value):
            if not isinstance(text, str):
                raise self.wrong("must be a list of texts", at if item is None else item)
        low, high = self.count_min, bound(self.count_max, limits)
        if not low <= len(value) <= high:
            raise self.wrong(f"must be a list of {low} to {high} texts", item)
        if self.words is not None and not set(value) <= set(self.words):
            raise self.wrong(f"may hold {', '.join(self.words)}", item)
        return value

    def _kind(self, limits: Limits) -> Schema:
        each: Schema = {"type": "string"}
        if self.words is not None:
            each = {"enum": list(self.words)}
        if self.pattern is not None:
            each["pattern"] = self.pattern
        if self.length_max is not None:
            each |= {"minLength": 1, "maxLength": self.length_max}
        return {
            "type": ["array", "null"],
            "items": each,
            "minItems": self.count_min,
            "maxItems": bound(self.count_max, limits),
        }


@dataclass(frozen=True, slots=True)
class TextMap(Member):
    """An object of texts."""

    def take(self, members: Values, item: int | None = None) -> dict[str, str] | None:
        """The texts by name, None when absent."""
        value = members.get(self.name)
        if value is None:
            return None
        if not isinstance(value, dict) or not all(
            isinstance(name, str) and isinstance(text, str) for name, text in value.items()
        ):
            raise self.wrong("must be an object of texts", item)
        return value

    def _kind(self, _limits: Limits) -> Schema:
        return {"type": ["object", "null"], "additionalProperties": {"type": "string"}}


class Shape:
    """An object of declared members; others are refused."""

    def __init__(self, title: str, doc: str, *members: Member, rules: Schema | None = None) -> None:
        self.title = title
        self.doc = doc
        self.members = members
        self.names = frozenset(member.name for member in members)
        self._rules = rules or {}
        """What the document says beyond the members, such as which are needed."""

    def check(self, members: Any, item: int | None = None) -> dict[str, Any]:
        """The values, if they are an object without unknown members."""
        if not isinstance(members, dict):
            raise Problem("bad_request", f"{self.doc} must be an object", item=item)
        if not members.keys() <= self.names:
            name = next(name for name in members if name not in self.names)
            known = f"known are {', '.join(sorted(self.names))}" if self.names else "it has none"
            raise Problem(
                "bad_request",
                f"unknown member {name!r}; {known}",
                field=str(name)[:64],
                item=item,
            )
        return members

    def schema(self, limits: Limits) -> Schema:
        """Its JSON schema."""
        return {
            "type": "object",
            "title": self.title,
            "properties": {member.name: member.schema(limits) for member in self.members},
            "additionalProperties": False,
            **self._rules,
        }


@dataclass(frozen=True, slots=True)
class Nested(Member):
    """An object of declared members."""

    shape: Shape

    def take(self, members: Values, item: int | None = None) -> dict[str, Any] | None:
        """Its values, None when absent."""
        value = members.get(self.name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong("must be an object", item)
        return self.shape.check(value, item)

    def _kind(self, limits: Limits) -> Schema:
        return {**self.shape.schema(limits), "type": ["object", "null"]}


@dataclass(frozen=True, slots=True)
class ObjectList(Member):
    """A list of objects of declared members."""

    shape: Shape
    count_max: int | str

    def take(self, members: Values, limits: Limits) -> list[dict[str, Any]] | None:
        """The values of each, None when absent."""
        value = members.get(self.name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong("must be a list of objects", None)
        most = bound(self.count_max, limits)
        if len(value) > most:
            raise self.wrong(f"holds at most {most} objects", None)
        return [self.shape.check(each, item) for item, each in enumerate(value)]

    def _kind(self, limits: Limits) -> Schema:
        return {
            "type": ["array", "null"],
            "items": self.shape.schema(limits),
            "maxItems": bound(self.count_max, limits),
        }

"""Declarations of request members and message fields, and shapes: objects of members.

One object checks and documents each. `check` returns a legal value or raises a MemberError that
names the member; `take` looks the member up in a mapping and checks it; `schema` returns its JSON
schema. A member that is None counts as absent. A bound is a number or the name of a limit, which is
an attribute of `limits`. A `Shape` is checked as a whole.

Several texts as one query parameter are separated by commas; in a text a comma has a backslash
before it, and a backslash is doubled. A backslash before any other character is dropped, and one at
the end is part of the text. Errors show durations as spans: nobody sees that 316224000000 ms are
ten years.
"""

from __future__ import annotations

import base64
import binascii
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar

# --------------------------------------------------------------------------------------- errors


class BatchError(Exception):
    """A bulk body or batch column is malformed. Nothing was stored; fix the named column."""

    def __init__(self, detail: str, *, field: str | None = None, item: int | None = None) -> None:
        self.field = field
        self.item = item
        super().__init__(detail)


class MemberError(BatchError, ValueError):
    """A member of a request or a field of a message has a value that is not allowed.

    `what` says what is wrong without naming the member, for a protocol that names it differently.
    """

    def __init__(
        self, detail: str, *, field: str | None = None, item: int | None = None, what: str = ""
    ) -> None:
        self.what = what or detail
        super().__init__(detail, field=field, item=item)


class MemberTypeError(MemberError, TypeError):
    """A member of a request or a field of a message has a value of the wrong type."""


# --------------------------------------------------------------------------------- joined texts

_MARKS: Final = re.compile(r"\\(.)|,", re.DOTALL)


def join_texts(texts: Iterable[str]) -> str:
    """The parameter."""
    return ",".join(re.sub(r"([\\,])", r"\\\1", text) for text in texts)


def split_texts(joined: str) -> list[str]:
    """The texts of a parameter, at least one."""
    found, *rest = _MARKS.split(joined)
    texts = [found]
    for escaped, text in zip(rest[::2], rest[1::2], strict=True):
        if escaped is None:
            texts.append(text)
        else:
            texts[-1] += escaped + text
    return texts


# --------------------------------------------------------------------------- durations in words

YEAR_MS: Final = 365.25 * 86_400_000
_UNITS: Final = (
    (YEAR_MS, "year"),
    (86_400_000, "day"),
    (3_600_000, "hour"),
    (60_000, "minute"),
    (1_000, "second"),
)


def in_words(ms: float) -> str:
    """The duration in its largest unit, such as `10 years` or `1.5 days`."""
    size_ms, unit = next((each for each in _UNITS if ms >= each[0]), (1, "millisecond"))
    count = f"{ms / size_ms:,.1f}".removesuffix(".0")
    return f"{count} {unit}{'' if count == '1' else 's'}"


def ms_in_words(ms: int) -> str:
    """The duration in milliseconds, as callers write it, and in words."""
    return f"{ms} ms ({in_words(ms)})"


# -------------------------------------------------------------------------------------- members

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
EXACT_MAX: Final = 2**53
"""Largest size of a whole number that floating point has exactly."""
_WHOLE: Final = re.compile(r"(-?[0-9]{1,20})(\.0+)?\Z")
_TYPES: Final[dict[type, str]] = {
    bool: "true or false",
    bytes: "bytes",
    dict: "an object",
    float: "a number with a fraction",
    int: "an integer",
    list: "a list",
    str: "text",
    type(None): "null",
}
"""What people who write JSON call the types of values."""
T = TypeVar("T")
Values: TypeAlias = Mapping[str, Any]
Schema: TypeAlias = dict[str, Any]


def bound(value: int | str, limits: object) -> int:
    """The bound as a number: itself, or the limit that it names."""
    return value if isinstance(value, int) else int(getattr(limits, value))


def whole_of(value: object) -> int | None:
    """A whole number, also one written as `1500.0` or `1.5e3`; None for any other value.

    JSON has one type of numbers, so programs write whole ones with a point or an exponent too.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def limit_note(*names: int | str) -> str:
    """Which limits of the broker a refusal is about, if bounds are named."""
    named = [each for each in names if isinstance(each, str)]
    return f" ({', '.join(named)} of the broker's limits)" if named else ""


@dataclass(frozen=True, slots=True)
class Member(ABC, Generic[T]):
    """The base of all declarations: a name and its documentation."""

    name: str
    doc: str

    def take(self, members: Values, limits: object = None, item: int | None = None) -> T | None:
        """The member's value, None when absent."""
        value = members.get(self.name)
        return None if value is None else self.check(value, limits, item)

    @abstractmethod
    def check(self, value: Any, limits: object = None, item: int | None = None) -> T:
        """The value if it is legal. `item` is its row in a list of requests, for the error."""

    def schema(self, limits: object) -> Schema:
        """Its JSON schema under these limits."""
        return {"description": self.doc, **self._kind(limits)}

    @abstractmethod
    def _kind(self, limits: object) -> Schema:
        """The JSON schema of the value, without the description."""

    def wrong(self, what: str, item: int | None = None) -> MemberError:
        """The error for an illegal value; `what` continues the member's name."""
        return MemberError(f"{self.name} {what}", field=self.name, item=item, what=what)

    def wrong_type(self, wanted: str, value: object, item: int | None) -> MemberTypeError:
        """The error for a value of the wrong type."""
        what = f"must be {wanted}, not {_TYPES.get(type(value)) or type(value).__name__}"
        return MemberTypeError(f"{self.name} {what}", field=self.name, item=item, what=what)


@dataclass(frozen=True, slots=True)
class Int(Member[int]):
    """A whole number."""

    low: int | str
    high: int | str

    def check(self, value: Any, limits: object = None, item: int | None = None) -> int:
        """The number."""
        found = value if type(value) is int else self.whole(value, item)
        low, high = bound(self.low, limits), bound(self.high, limits)
        if not low <= found <= high:
            note = limit_note(self.low, self.high)
            most = f"{high} ({in_words(high)})" if _is_long(self.name, high) else high
            raise self.wrong(f"must lie from {low} to {most}, not {value}{note}", item)
        if isinstance(value, float) and abs(found) > EXACT_MAX:
            # Floating point has already rounded it.
            raise self.wrong(f"{value} is not exact: write it without point and exponent", item)
        return found

    def whole(self, value: Any, item: int | None) -> int:
        """The number, which may be out of bounds. Raises MemberTypeError for any other value."""
        found = whole_of(value)
        if found is None:
            raise self.wrong_type("an integer", value, item)
        return found

    def _kind(self, limits: object) -> Schema:
        return {
            "type": ["integer", "null"],
            "minimum": bound(self.low, limits),
            "maximum": bound(self.high, limits),
        }


def _is_long(name: str, bound: int) -> bool:
    """Whether a bound is a duration that nobody reads in milliseconds."""
    return name.endswith("_ms") and 86_400_000 <= bound < INT64_MAX


@dataclass(frozen=True, slots=True)
class IntOrText(Member[int | str]):
    """A whole number or a name. The bounds are for the schema only; the caller checks the value."""

    low: int
    high: int

    def check(self, value: Any, limits: object = None, item: int | None = None) -> int | str:
        """The number or the name."""
        found = value if isinstance(value, str) else whole_of(value)
        if found is None:
            raise self.wrong_type("an integer or text", value, item)
        return found

    def _kind(self, limits: object) -> Schema:
        return {"type": ["integer", "string", "null"], "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Number(Member[float]):
    """A number, whole or not."""

    low: float
    high: float

    def check(self, value: Any, limits: object = None, item: int | None = None) -> float:
        """The number."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.wrong_type("a number", value, item)
        # NaN is in no range.
        if not self.low <= value <= self.high:
            raise self.wrong(f"must lie from {self.low} to {self.high}, not {value}", item)
        return value

    def _kind(self, limits: object) -> Schema:
        return {"type": ["number", "null"], "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class QueryInt(Int):
    """A whole number as a query parameter."""

    default: int = 0

    def take(self, members: Values, limits: object = None, item: int | None = None) -> int:
        """The number."""
        text = members.get(self.name)
        if text is None:
            return self.default
        # `int` would also accept "1_0", " 1" and the digits of other scripts.
        digits = _WHOLE.match(text)
        if not digits:
            raise self.wrong("must be an integer", item)
        return self.check(int(digits[1]), limits, item)

    def _kind(self, limits: object) -> Schema:
        return {**Int._kind(self, limits), "type": "integer", "default": self.default}


@dataclass(frozen=True, slots=True)
class Text(Member[bytes]):
    """A text, as UTF-8 bytes."""

    bytes_max: int | None = None
    pattern: str | None = None
    """The regular expression of a legal text, for the schema; the caller checks it."""
    bytes_min: int = field(default=0, kw_only=True)

    def check(self, value: Any, limits: object = None, item: int | None = None) -> bytes:
        """The text."""
        if not isinstance(value, str):
            raise self.wrong_type("text", value, item)
        try:
            raw = value.encode()
        except UnicodeEncodeError:
            raise self.wrong("must be valid Unicode", item) from None
        if len(raw) < self.bytes_min:
            raise self.wrong("must not be empty", item)
        if self.bytes_max is not None and len(raw) > self.bytes_max:
            raise self.wrong(f"must have at most {self.bytes_max} bytes, not {len(raw)}", item)
        return raw

    def _kind(self, limits: object) -> Schema:
        kind: Schema = {"type": ["string", "null"]}
        if self.bytes_max is not None:
            kind["maxLength"] = self.bytes_max
        if self.bytes_min:
            kind["minLength"] = self.bytes_min
        if self.pattern is not None:
            kind["pattern"] = self.pattern
        return kind


@dataclass(frozen=True, slots=True)
class Name(Text):
    """A text that must match its pattern."""

    rule: str | None = None
    """The pattern in words."""

    def check(self, value: Any, limits: object = None, item: int | None = None) -> bytes:
        """The name."""
        assert self.pattern is not None, "a name has a pattern"
        raw = Text.check(self, value, limits, item)
        if not re.fullmatch(self.pattern, value) or value.endswith("\n"):
            raise self.wrong(self.rule or f"must match {self.pattern[1:-1]}", item)
        return raw


@dataclass(frozen=True, slots=True)
class Base64(Member[bytes]):
    """Bytes as base64 text."""

    def check(self, value: Any, limits: object = None, item: int | None = None) -> bytes:
        """The bytes."""
        if not isinstance(value, str):
            raise self.wrong_type("text", value, item)
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise self.wrong("must be base64", item) from None

    def _kind(self, limits: object) -> Schema:
        return {"type": ["string", "null"], "contentEncoding": "base64"}


@dataclass(frozen=True, slots=True)
class Flag(Member[bool]):
    """True or false."""

    default: bool = False

    def take(self, members: Values, limits: object = None, item: int | None = None) -> bool:
        """The flag."""
        value = members.get(self.name)
        return self.default if value is None else self.check(value, limits, item)

    def check(self, value: Any, limits: object = None, item: int | None = None) -> bool:
        """The flag."""
        if not isinstance(value, bool):
            raise self.wrong_type("true or false", value, item)
        return value

    def _kind(self, limits: object) -> Schema:
        return {"type": ["boolean", "null"], "default": self.default}


@dataclass(frozen=True, slots=True)
class QueryFlag(Flag):
    """True or false as a query parameter; one without a value is true."""

    def check(self, value: Any, limits: object = None, item: int | None = None) -> bool:
        """The flag."""
        known = {"true": True, "1": True, "": True, "false": False, "0": False}
        if value.lower() not in known:
            raise self.wrong("must be true or false", item)
        return known[value.lower()]

    def _kind(self, limits: object) -> Schema:
        return {"type": "boolean", "default": self.default}


@dataclass(frozen=True, slots=True)
class Choice(Member[str]):
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, value: Any, limits: object = None, item: int | None = None) -> str:
        """The word."""
        if not isinstance(value, str) or value not in self.words:
            plain = isinstance(value, (str, int, float))
            given = repr(value)[:64] if plain else type(value).__name__
            raise self.wrong(f"must be one of {', '.join(self.words)}, not {given}", item)
        return value

    def _kind(self, limits: object) -> Schema:
        return {"enum": [*self.words, None]}


@dataclass(frozen=True, slots=True)
class OneOf(Member[int]):
    """One of a few numbers."""

    numbers: tuple[int, ...]

    def check(self, value: Any, limits: object = None, item: int | None = None) -> int:
        """The number."""
        found = whole_of(value)
        if found is None:
            raise self.wrong_type("an integer", value, item)
        if found not in self.numbers:
            raise self.wrong(f"must be one of {', '.join(map(str, self.numbers))}", item)
        return found

    def _kind(self, limits: object) -> Schema:
        return {"enum": [*self.numbers, None]}


@dataclass(frozen=True, slots=True)
class QueryWords(Member[frozenset[str]]):
    """Some of a few words, as a query parameter: separated by commas, or `all`."""

    words: tuple[str, ...]

    def take(
        self, members: Values, limits: object = None, item: int | None = None
    ) -> frozenset[str]:
        """The words; all of them when absent."""
        text = members.get(self.name)
        return frozenset(self.words) if text is None else self.check(text, limits, item)

    def check(self, value: Any, limits: object = None, item: int | None = None) -> frozenset[str]:
        """The words."""
        found = frozenset(self.words if value == "all" else value.split(","))
        if not found <= set(self.words):
            words = ", ".join(self.words)
            raise self.wrong(f"must be all, or one or more of {words}, separated by commas", item)
        return found

    def _kind(self, limits: object) -> Schema:
        word = f"({'|'.join(self.words)})"
        return {"type": "string", "pattern": f"^(all|{word}(,{word})*)$"}


@dataclass(frozen=True, slots=True)
class QueryTexts(Member[list[str]]):
    """Texts as a query parameter: separated by commas; see `joined_texts`."""

    count_max: int

    def check(self, value: Any, limits: object = None, item: int | None = None) -> list[str]:
        """The texts."""
        texts = split_texts(value)
        if len(texts) > self.count_max:
            raise self.wrong(f"must be at most {self.count_max} texts, not {len(texts)}", item)
        return texts

    def _kind(self, limits: object) -> Schema:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class TextList(Member[list[str]]):
    """A list of texts."""

    count_min: int
    count_max: int | str
    words: tuple[str, ...] | None = None
    """The only legal texts; None: any text is legal."""
    pattern: str | None = None
    length_max: int | None = None

    def check(self, value: Any, limits: object = None, item: int | None = None) -> list[str]:
        """The texts. One text is refused, although it is iterable."""
        wanted = "a list of texts"
        if not isinstance(value, list):
            if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
                raise self.wrong_type(wanted, value, item)
            value = list(value)
        texts: list[str] = value
        for at, text in enumerate(texts):
            if not isinstance(text, str):
                raise self.wrong_type(wanted, text, at if item is None else item)
        low, high = self.count_min, bound(self.count_max, limits)
        if not low <= len(value) <= high:
            count = f"{len(value)}{limit_note(self.count_max)}"
            raise self.wrong(f"must be a list of {low} to {high} texts, not {count}", item)
        if self.words is not None and not set(value) <= set(self.words):
            raise self.wrong(f"may only contain {', '.join(self.words)}", item)
        return texts

    def _kind(self, limits: object) -> Schema:
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
class TextMap(Member[dict[str, str]]):
    """An object whose values are texts."""

    def check(self, value: Any, limits: object = None, item: int | None = None) -> dict[str, str]:
        """The texts by name."""
        wanted = "an object of texts"
        if not isinstance(value, Mapping):
            raise self.wrong_type(wanted, value, item)
        for name, text in value.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise self.wrong_type(wanted, name if isinstance(text, str) else text, item)
        return dict(value)

    def _kind(self, limits: object) -> Schema:
        return {"type": ["object", "null"], "additionalProperties": {"type": "string"}}


# --------------------------------------------------------------------------------------- shapes


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

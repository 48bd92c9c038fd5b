"""Call: one request and how its answer is read.

The one rule: an answer that cannot be read says nothing about what was done, so `decoded` turns it
into AnswerLost. Paths begin at the broker's root; which node they go to is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

from delaylog.client.errors import AnswerLost
from delaylog.client.wire.bulk import BULK_TYPE

JSON_TYPE: Final = "application/json"
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Form:
    """What media types go out and are asked for, as headers."""

    content_type: str | None
    accept: str

    def headers(self) -> dict[str, str]:
        """As HTTP says it."""
        if self.content_type is None:
            return {"Accept": self.accept}
        return {"Content-Type": self.content_type, "Accept": self.accept}


BULK_FORM: Final = Form(BULK_TYPE, BULK_TYPE)
JSON_FORM: Final = Form(JSON_TYPE, JSON_TYPE)
READ_FORM: Final = Form(None, JSON_TYPE)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `repeatable`: twice is as once, so a lost answer may be asked for again."""

    method: str
    path: str
    body: bytes | None
    form: Form
    decode: Callable[[bytes], T]
    repeatable: bool = False
    extra_s: float = 0.0
    """How long the broker may wait before it answers, beyond what any call takes."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def decoded(self, wire: bytes) -> T:
        """The answer's value. AnswerLost where it cannot be read."""
        try:
            return self.decode(wire)
        except (ValueError, KeyError, TypeError) as error:
            raise AnswerLost(f"the answer cannot be read: {error}") from error

    def read(self, further: Callable[[T], U]) -> Call[U]:
        """The same call, its value taken further."""
        decode = self.decode
        return Call(
            self.method,
            self.path,
            self.body,
            self.form,
            lambda wire: further(decode(wire)),
            self.repeatable,
            self.extra_s,
            self.headers,
        )

    def again(self) -> Call[T]:
        """The same call as one that may be repeated: for who can bear what that means."""
        return replace(self, repeatable=True)


def json_call(
    method: str,
    path: str,
    shape: object | None = None,
    *,
    repeatable: bool = False,
) -> Call[dict[str, Any]]:
    """A call in JSON; reads may always be repeated."""
    return Call(
        method,
        path,
        None if shape is None else json.dumps(shape).encode(),
        READ_FORM if shape is None else JSON_FORM,
        json_object,
        repeatable or method == "GET",
    )


def json_object(wire: bytes) -> dict[str, Any]:
    """A JSON object; ValueError for anything else."""
    value = json.loads(wire)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def segment(text: str) -> str:
    """One path segment, percent-encoded so that every legal id survives; dots would be folded."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe=":")


def with_query(path: str, **query: str | int | bool | None) -> str:
    """The path with those parameters that are given."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None
    }
    return f"{path}?{urlencode(given)}" if given else path

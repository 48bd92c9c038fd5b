"""Call: one request, and how to read its answer.

An answer that cannot be read does not say what was done, so `decoded` raises AnswerLost for it.
Paths start at the broker's root and do not depend on the node.
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
UNREADABLE: Final = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading an answer raises that has not the members of an answer."""
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Form:
    """The media types of the request and of the wanted answer."""

    content_type: str | None
    accept: str

    def headers(self) -> dict[str, str]:
        """The HTTP headers."""
        if self.content_type is None:
            return {"Accept": self.accept}
        return {"Content-Type": self.content_type, "Accept": self.accept}


BULK_FORM: Final = Form(BULK_TYPE, BULK_TYPE)
JSON_FORM: Final = Form(JSON_TYPE, JSON_TYPE)
READ_FORM: Final = Form(None, JSON_TYPE)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `repeatable`: it is idempotent, so it may be retried after a lost answer.

    `at_once`: it is not repeated while no node can be reached, since its caller repeats calls or
    asks another shard.
    """

    method: str
    path: str
    body: bytes | None
    form: Form
    decode: Callable[[bytes], T]
    repeatable: bool = False
    extra_s: float = 0.0
    """How long the broker may wait before it answers, in addition to the time limit."""
    headers: Mapping[str, str] = field(default_factory=dict)
    limit_s: float | None = None
    """How long the call may take, its repeats included; None: as long as the client says."""
    at_once: bool = False
    local: bool = False
    """Whether each node answers it itself, so that it need not go to the leader."""

    def decoded(self, wire: bytes) -> T:
        """The value of the answer. AnswerLost if it cannot be read."""
        try:
            return self.decode(wire)
        except UNREADABLE as error:
            raise AnswerLost(f"the answer cannot be read: {error}") from error

    def read(self, further: Callable[[T], U]) -> Call[U]:
        """The same call, whose value is passed through `further`."""
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
            self.limit_s,
            self.at_once,
            self.local,
        )

    def again(self, *, at_once: bool = False) -> Call[T]:
        """The same call marked repeatable, for callers that accept that it may run twice."""
        return replace(self, repeatable=True, at_once=at_once)


def json_call(
    method: str,
    path: str,
    shape: object | None = None,
    *,
    repeatable: bool = False,
    limit_s: float | None = None,
    local: bool = False,
) -> Call[dict[str, Any]]:
    """A call with a JSON body. Reads are always repeatable."""
    return Call(
        method,
        path,
        None if shape is None else json.dumps(shape).encode(),
        READ_FORM if shape is None else JSON_FORM,
        json_object,
        repeatable or method == "GET",
        limit_s=limit_s,
        local=local,
    )


def json_object(wire: bytes) -> dict[str, Any]:
    """Parse a JSON object. ValueError for anything else."""
    value = json.loads(wire)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def segment(text: str) -> str:
    """A percent-encoded path segment. Dots too, since `..` would be removed from the path."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe=":")


def with_query(path: str, **query: str | int | bool | None) -> str:
    """The path with the query parameters that are not None."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None
    }
    return f"{path}?{urlencode(given)}" if given else path

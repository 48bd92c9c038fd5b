"""Call: one request, and how to read its answer; `request` builds it from the table of calls.

An answer that cannot be read does not say what was done, so `decoded` raises AnswerLost for it.
Paths start at the broker's root and do not depend on the node. By the table (`contract/calls`) the
names in the path are positional arguments, in the order of the path. All other values are keyword
arguments; the table says whether each goes into the query or the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from inspect import Parameter, Signature
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

from delaylog.client.errors import AnswerLost
from delaylog.client.keywords import TimeLimit
from delaylog.client.wire.bulk import BULK_TYPE
from delaylog.client.wire.checks import a_number, check_namespace
from delaylog.client.wire.times import limit_of, split_limit
from delaylog.contract.calls.call import ApiCall
from delaylog.contract.calls.table import ALL, BY_NAME
from delaylog.contract.calls.topics import TOPIC, TOPICS

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


# ------------------------------------------------------------------------- paths in a namespace


class Places:
    """The URL paths in one namespace."""

    def __init__(self, namespace: str = "default") -> None:
        check_namespace(namespace)
        self.namespace = namespace
        self.topics = f"/v1/ns/{segment(namespace)}/topics"

    def of(self, topic: str, *rest: str) -> str:
        """The path of a topic, or of a resource below it."""
        return _path(self.topics, topic, *rest)


@lru_cache(1_024)
def _path(topics: str, topic: str, *rest: str) -> str:
    """Build a path. Results are cached, since most paths are used repeatedly."""
    if not topic:
        raise ValueError("a topic has a name")
    return "/".join((topics, *map(segment, (topic, *rest))))


# ------------------------------------------------------------- requests from the table of calls


def _tail(call: ApiCall) -> tuple[str, ...]:
    """The path segments after the topic. A parameter is an empty string."""
    segments = call.path.removeprefix(TOPIC).strip("/").split("/")
    return tuple("" if each.startswith("{") else each for each in segments if each)


_TAILS: Final = {call.name: _tail(call) for call in ALL}
_PARAMETERS: Final = {call.name: tuple(re.findall(r"{(\w+)}", call.path)) for call in ALL}
_FLAGS: Final = {call.name: call.flags for call in ALL}
_QUERIES: Final = {call.name: frozenset(each.name for each in call.query) for call in ALL}


def path_of(name: str, /, *place: Places | str) -> str:
    """The path of a call. For a call in a namespace, the first of `place` is its `Places`.

    TypeError for a name that is not a str.
    """
    tail = _TAILS[name]
    places = place[0] if place and isinstance(place[0], Places) else None
    names = iter(_texts(name, place if places is None else place[1:]))
    if places is None:
        return "/" + "/".join(each or segment(next(names)) for each in tail)
    if BY_NAME[name].path == TOPICS:
        return places.topics
    return places.of(next(names), *(each or next(names) for each in tail))


def _texts(name: str, place: Sequence[Places | str]) -> list[str]:
    texts = []
    for parameter, each in zip(_PARAMETERS[name], place, strict=True):
        if not isinstance(each, str):
            raise TypeError(f"{parameter} is a text, not {type(each).__name__}")
        texts.append(each)
    return texts


def request(
    name: str,
    /,
    *place: Places | str,
    limit_s: float | None = None,
    limits: TimeLimit | None = None,
    **given: Any,
) -> Call[dict[str, Any]]:
    """Build a JSON call. Members that are None and flags with their default are left out.

    `limits` has the time limit of the call, as `limit_s` and `timeout` among the members have.
    TypeError for another keyword in `limits`.
    """
    call, flags = BY_NAME[name], _FLAGS[name]
    if limits:
        limit_s = limit_of("a call", limits)
    if limit_s is None:
        if "timeout_s" in given:
            raise a_number("a call", "timeout_s")
        limit_s, given = split_limit(given)
    given = {
        key: value
        for key, value in given.items()
        if value is not None and (key not in flags or value != flags[key])
    }
    query = given
    if call.takes is not None and not call.takes.columns:
        query = {key: given.pop(key) for key in _QUERIES[name] & given.keys()}
    return json_call(
        call.method,
        with_query(path_of(name, *place), **query),
        None if query is given else given,
        repeatable=call.repeatable,
        limit_s=limit_s,
        local=call.local,
    )


# ---------------------------------------------------- methods that are made from such functions


def document(
    method: Any, make: Callable[..., Any], parameters: Sequence[Parameter], answer: object
) -> None:
    """Have `help` and `inspect.signature` show the method as if it were written by hand."""
    itself = Parameter("self", Parameter.POSITIONAL_ONLY)
    method.__name__, method.__doc__ = make.__name__, make.__doc__
    # `get_type_hints` reads the annotations in the module of `__wrapped__`.
    method.__wrapped__ = make
    method.__annotations__ = {each.name: each.annotation for each in parameters}
    method.__signature__ = Signature([itself, *parameters], return_annotation=answer)

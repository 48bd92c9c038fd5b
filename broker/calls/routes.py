"""Finds the call that a path of the native API names, and the names within the path.

Paths are matched segment by segment in a tree that is built from the table of calls. Each segment
costs a dictionary look-up; a router's regular expressions would cost as much as the engine call.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from delaylog.broker.calls.answers import Problem
from delaylog.broker.calls.operations import HANDLERS, Handler
from delaylog.broker.engine.access.principals import NAME as PRINCIPAL_NAME
from delaylog.broker.host.waiters import TopicKey
from delaylog.contract.calls.call import ApiCall
from delaylog.contract.calls.table import ALL
from delaylog.contract.calls.topics import IN_NAMESPACES

T = TypeVar("T")
_BASE: Final = "/v1/"
# Browsers and curl remove `.` and `..` from paths: /v1/ns/../topics/t would be another topic.
TOPIC_NAME: Final = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,200}\Z")
NAME_RULE: Final = "[A-Za-z0-9._-]{1,200}, but not . or .."
"""What `TOPIC_NAME` matches, for errors."""
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}\Z")
_NAMES: Final = {
    "ns": (TOPIC_NAME, f"a namespace is {NAME_RULE}", None),
    "topic": (TOPIC_NAME, f"a topic is named {NAME_RULE}", "topic"),
    "group": (TOPIC_NAME, f"a group is named {NAME_RULE}", "group"),
    "claim": (_ID, "a claim is named [A-Za-z0-9._:-]{1,200}", "claim"),
    "principal": (PRINCIPAL_NAME, "a principal is named [A-Za-z0-9._@-]{1,100}", "principal"),
    "transaction": (_ID, "a transaction's id is [A-Za-z0-9._:-]{1,200}", "transaction"),
}
"""The pattern of each kind of name in a path, and the text and the field of its refusal."""


class Route(NamedTuple):
    """The call of a path and a method, and what the path names."""

    call: ApiCall
    handler: Handler
    topic_key: TopicKey
    """The namespace and topic of the path; an absent topic is the empty string."""
    params: dict[str, str]
    """The other names in the path, by kind; `action` is the last word of the call's path."""
    common: bool
    """Whether the path names a valid topic and nothing else: such a route is worth caching."""


@dataclass(slots=True)
class _Place:
    """A node of the tree: what may follow some segments of a path."""

    calls: dict[str, ApiCall] = field(default_factory=dict)
    """By method."""
    under: dict[str, _Place] = field(default_factory=dict)
    name: str = ""
    """The kind of name that the next segment is, if it is none of `under`."""
    named: _Place | None = None


def _tree() -> _Place:
    root = _Place()
    paths = [(call, call.path.removeprefix(_BASE)) for call in ALL]
    paths += [(call, "ns/{ns}/" + call.path.removeprefix(_BASE)) for call in IN_NAMESPACES]
    for call, path in paths:
        place = root
        for segment in path.split("/"):
            if segment.startswith("{"):
                place.name = segment[1:-1]
                place.named = place = place.named or _Place()
            else:
                place = place.under.setdefault(segment, _Place())
        place.calls[call.method] = call
    return root


_ROOT: Final = _tree()
_ACTIONS: Final = {call.name: re.split("[/:]", call.path)[-1] for call in ALL}


def resolve(path: str, method: str, topics: Container[TopicKey] = ()) -> Route:
    """The call of a path below /v1. Raises Problem if there is no such call or a name is malformed.

    The topic may also be one of `topics` with any name, since camellia's clients are less limited.
    """
    if not path.startswith(_BASE):
        raise _nothing(path)
    place, params, well_named = _ROOT, {}, True
    for raw in path[len(_BASE) :].split("/"):
        under = place.under.get(raw)
        if under is None and "%" in raw:
            raw = _decoded(raw)
            under = place.under.get(raw)
        if under is None:
            name, under = place.name, place.named
            # A slash at the end names nothing. Browsers and curl make /v1/topics/t/ of
            # /v1/topics/t/messages/.. and a DELETE of that message must not delete the topic.
            if under is None or raw == "":
                raise _nothing(path)
            params[name] = raw
            known = _NAMES.get(name)
            if known is not None and not known[0].match(raw):
                if name != "topic" or (params.get("ns", "default"), raw) not in topics:
                    raise Problem("bad_request", known[1], field=known[2])
                well_named = False
        place = under
    if not place.calls:
        raise _nothing(path)
    call = pick(place.calls, method)
    if call.streams and method == "HEAD":
        raise no_head()
    key = (params.pop("ns", "default"), params.pop("topic", ""))
    # A topic name outside the pattern is accepted only while the topic exists, so it is not cached.
    common = well_named and key[1] != "" and not params
    params["action"] = _ACTIONS[call.name]
    return Route(call, HANDLERS[call.name], key, params, common)


def pick(table: dict[str, T], method: str) -> T:
    """The entry of a method; HEAD has that of GET. Raises a Problem that lists the methods."""
    found = table.get("GET" if method == "HEAD" else method)
    if found is None:
        allow = ", ".join(sorted({*table, "HEAD"} if "GET" in table else table))
        raise Problem("method", f"{method} is not offered here; use {allow}", allow=allow)
    return found


def no_head() -> Problem:
    """The refusal of a HEAD for a stream, which has no end and thus no length."""
    return Problem("method", "HEAD is not offered here: a stream has no length", allow="GET")


def _nothing(path: str) -> Problem:
    return Problem("unknown", f"there is nothing at {path[:200]}")


def _decoded(raw: str) -> str:
    """A path segment, percent-decoded."""
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Problem("bad_request", "the path is not UTF-8") from None

"""Which handler a path of the native API means, and what it names on the way.

Paths are matched by their segments in tables that are made from `operations`: a dictionary look-up,
where a router's regular expressions cost as much as the whole engine call.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from delaylog.broker.calls.operations import Handler, by_tail
from delaylog.broker.calls.operations.of_claims import CLAIM
from delaylog.broker.calls.operations.of_nodes import (
    ARCHIVE,
    CLOCK,
    CLUSTER,
    JOB,
    JOBS,
    TRANSACTION,
    TRANSACTIONS,
)
from delaylog.broker.calls.operations.of_topics import GROUP, MESSAGE, TOPIC, TOPICS
from delaylog.broker.calls.problems import Problem
from delaylog.broker.waiters import TopicKey

T = TypeVar("T")
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}\Z")
CLAIM_NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}\Z")
NOWHERE: Final[TopicKey] = ("default", "")
"""The place of a call that is about no topic."""

_UNDER_TOPIC: Final = by_tail(TOPIC)
_MESSAGE: Final = by_tail(MESSAGE)[""]
_GROUP: Final = by_tail(GROUP)[""]
_CLAIM: Final = by_tail(CLAIM)
_TOPICS: Final = by_tail(TOPICS)[""]
_ARCHIVE: Final = by_tail(ARCHIVE)
_CLOCK: Final = by_tail(CLOCK)[""]
_CLUSTER: Final = by_tail(CLUSTER)
_JOBS: Final = by_tail(JOBS)[""]
_JOB: Final = by_tail(JOB)[""]
_TRANSACTIONS: Final = by_tail(TRANSACTIONS)[""]
_TRANSACTION: Final = by_tail(TRANSACTION)


class Route(NamedTuple):
    """What a path and a method mean."""

    handler: Handler
    topic_key: TopicKey
    params: dict[str, str]
    """Segments of the path that name something, by what they name."""
    common: bool = False
    """Whether the path names a topic and nothing else: such calls come again and again."""


def resolve(path: str, method: str, topics: Container[TopicKey] = ()) -> Route:
    """The handler of a path below /v1. Raises Problem: there is none, or a name is none.

    A topic that exists has any name: camellia's clients choose theirs more freely.
    """
    parts = path.split("/")
    if len(parts) < 3 or parts[1] != "v1":
        raise _nothing(path)
    found = _of_broker(path, parts, method)
    if found is not None:
        return found
    namespace = "default"
    at = 2
    if parts[2] == "ns" and len(parts) >= 5:
        namespace = _segment(parts[3])
        if not TOPIC_NAME.match(namespace):
            raise Problem("bad_request", "a namespace is [A-Za-z0-9._-]{1,200}")
        at = 4
    if parts[at] != "topics":
        raise _nothing(path)
    rest = parts[at + 1 :]
    if not rest or rest == [""]:
        return Route(pick(_TOPICS, method), (namespace, ""), {})
    name = _segment(rest[0])
    if TOPIC_NAME.match(name):
        return _under_topic(path, (namespace, name), rest, method)
    if (namespace, name) not in topics:
        raise Problem("bad_request", "a topic is named [A-Za-z0-9._-]{1,200}", field="topic")
    # Not remembered: the name is none once the topic has gone.
    return _under_topic(path, (namespace, name), rest, method)._replace(common=False)


def _of_broker(path: str, parts: list[str], method: str) -> Route | None:
    """What is about the broker as a whole; None where it is about topics."""
    if path == CLOCK:
        return Route(pick(_CLOCK, method), NOWHERE, {})
    if parts[2] in ("cluster", "archive") and len(parts) <= 4:
        tables = _CLUSTER if parts[2] == "cluster" else _ARCHIVE
        table = tables.get("/".join(parts[3:]))
        if table is not None:
            return Route(pick(table, method), NOWHERE, {})
    if path == JOBS:
        return Route(pick(_JOBS, method), NOWHERE, {})
    if parts[2] == "jobs" and len(parts) == 4:
        return Route(pick(_JOB, method), NOWHERE, {"job": _segment(parts[3])})
    if path == TRANSACTIONS:
        return Route(pick(_TRANSACTIONS, method), NOWHERE, {})
    if parts[2] == "transactions" and len(parts) in (4, 5):
        under_one = _TRANSACTION.get("/".join(parts[4:]))
        if under_one is not None:
            params = {"transaction": _segment(parts[3])}
            return Route(pick(under_one, method), NOWHERE, params)
    return None


def _under_topic(path: str, key: TopicKey, rest: list[str], method: str) -> Route:
    """What stands below a topic; `rest` begins with its name."""
    under = rest[1] if len(rest) > 1 else ""
    if under == "messages" and len(rest) == 3:
        return Route(pick(_MESSAGE, method), key, {"id": _segment(rest[2])})
    if under == "groups" and len(rest) == 3:
        group = _segment(rest[2])
        if not TOPIC_NAME.match(group):
            raise Problem("bad_request", "a group is named [A-Za-z0-9._-]{1,200}", field="group")
        return Route(pick(_GROUP, method), key, {"group": group})
    if under == "claims" and 3 <= len(rest) <= 4:
        claim = _segment(rest[2])
        if not CLAIM_NAME.match(claim):
            raise Problem("bad_request", "a claim is named [A-Za-z0-9._:-]{1,200}", field="claim")
        action = _segment("/".join(rest[3:]))
        if action not in _CLAIM:
            raise _nothing(path)
        return Route(pick(_CLAIM[action], method), key, {"claim": claim, "action": action})
    table = _UNDER_TOPIC.get(_segment(under)) if len(rest) <= 2 else None
    if table is None:
        raise _nothing(path)
    action = _segment(under).rpartition(":")[2]
    return Route(pick(table, method), key, {"action": action}, common=True)


def pick(table: dict[str, T], method: str) -> T:
    """The handler of a method, or a Problem that says which there are."""
    handler = table.get(method)
    if handler is None:
        allow = ", ".join(sorted(table))
        raise Problem("method", f"{method} is not offered here; use {allow}", allow=allow)
    return handler


def _nothing(path: str) -> Problem:
    return Problem("unknown", f"there is nothing at {path[:200]}")


def _segment(raw: str) -> str:
    """A path segment, percent-decoded; every legal id works."""
    if "%" not in raw:
        return raw
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise Problem("bad_request", "the path is not UTF-8") from None

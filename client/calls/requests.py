"""Builds requests from the table of calls (`contract/calls`).

The names in the path are positional arguments, in the order of the path. All other values are
keyword arguments; the table says whether each goes into the query or the body.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from delaylog.client.calls.call import Call, json_call, segment, with_query
from delaylog.client.calls.places import Places
from delaylog.client.wire.durations import split_limit
from delaylog.contract.calls.call import ApiCall
from delaylog.contract.calls.table import ALL, BY_NAME
from delaylog.contract.calls.topics import TOPIC, TOPICS


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
    name: str, /, *place: Places | str, limit_s: float | None = None, **given: Any
) -> Call[dict[str, Any]]:
    """Build a JSON call. Members that are None and flags with their default are left out.

    `timeout` or `timeout_s` among the members is the time limit of the call, as `limit_s` is.
    """
    call, flags = BY_NAME[name], _FLAGS[name]
    if limit_s is None:
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

"""Ids of the broker without their `~`: zsh expands it, and a double click leaves it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from delaylog.client.errors import ApiError
from delaylog.contract.message_fields import made_id

Answer: TypeAlias = dict[str, Any]


async def by_id(given: str, act: Callable[[str], Awaitable[Answer]]) -> tuple[str, Answer]:
    """(id, answer) of a call about the message of an id as given. If there is none, and the id may
    be one of the broker without its `~`, the call is about that message.
    """
    made = made_id(given)
    try:
        answer = await act(given)
    except ApiError as error:
        if error.code != "unknown" or made is None:
            raise
    else:
        if answer.get("result") != "unknown" or made is None:
            return given, answer
    return made, await act(made)

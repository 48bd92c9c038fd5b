"""What is said of a call: method, path, handler, and what it takes and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from delaylog.broker.calls.answer import Answer, Stream
from delaylog.broker.calls.context import Context
from delaylog.storage.members import Member, Shape

Handler: TypeAlias = Callable[[Context], Awaitable[Answer | Stream]]


@dataclass(frozen=True, slots=True)
class Takes:
    """A request's body."""

    shape: Shape | str
    """Its members, or the name of a schema."""
    many: bool = False
    """An array of them is taken as well."""
    bulk: bool = False
    """A bulk body is taken as well."""
    arrow: bool = False
    """An Arrow body is taken as well."""
    columns: bool = False
    """Nothing but columns is taken: one of the forms in bulk_bodies.py."""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    """One call."""

    method: str
    path: str
    handler: Handler
    name: str
    doc: str
    answers: dict[int, str]
    """Schema of each good status."""
    takes: Takes | None = None
    query: tuple[Member[Any], ...] = ()
    query_needed: tuple[Member[Any], ...] = ()
    """Those of them that cannot be left out."""
    problems: tuple[int, ...] = ()
    """Statuses of refusals beyond those that any call may have."""
    bulk_answer: bool = False
    arrow_answer: bool = False

"""`ApiCall`, a row of the table of calls: its name, path, parameters, answer and right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from delaylog.contract.members import Flag, Member, Shape

Right: TypeAlias = Literal[
    "send",
    "receive",
    "read",
    "bodies",
    "change",
    "admin",
    "operate",
    "metrics",
    "dashboard",
    "redis",
    "any",
]
"""The permission that a call requires; `any` = every principal may make it."""
WATCHING: Final[tuple[Right, ...]] = ("metrics", "operate")
"""The rights of those who watch a broker: with one of them they are answered without a leader."""


@dataclass(frozen=True, slots=True)
class Takes:
    """The body of a request."""

    shape: Shape | str
    """Its members, or the name of a schema."""
    many: bool = False
    """Whether an array of such objects is accepted too."""
    bulk: bool = False
    """Whether a bulk body is accepted too."""
    arrow: bool = False
    """Whether an Arrow body is accepted too."""
    columns: bool = False
    """Whether only the columnar forms of bulk_bodies.py are accepted, and no JSON."""
    needed: bool = True
    """Whether the body is required."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One call of the API."""

    name: str
    request_line: str
    """Method and path, separated by a space."""
    right: Right
    doc: str
    answer: str
    """The name of the answer's schema."""
    takes: Takes | None = None
    query: tuple[Member[Any], ...] = ()
    query_needed: tuple[Member[Any], ...] = ()
    """The required ones of `query`."""
    problems: tuple[int, ...] = ()
    """HTTP statuses of refusals that `refusals` does not derive from the other fields."""
    makes: bool = False
    """Whether the call creates what its path names if it does not exist."""
    other: tuple[int, str] | None = None
    """A second status of success, and the name of its answer's schema."""
    bulk_answer: bool = False
    arrow_answer: bool = False
    repeatable: bool = False
    """Whether the call is idempotent, so a client that lost the answer may repeat it. Every GET is
    repeatable, whatever this field says.
    """
    lists_groups: bool = False
    """Whether it lists groups, or what is in them: only those that the caller may read."""
    local: bool = False
    """Whether each node answers for itself, leader or not."""
    leaderless: bool = False
    """Whether a node that knows no leader answers it from its own state, to callers with a right of
    `WATCHING`. It may tell nothing of messages.
    """
    streams: bool = False
    """Whether it leases messages and delivers them as a stream: a WebSocket or server-sent events.
    """

    method: str = field(init=False)
    path: str = field(init=False)
    reads: bool = field(init=False)
    """Whether the call only reads the leader's state; `?read=local` lets any node answer it."""

    def __post_init__(self) -> None:
        method, _, path = self.request_line.partition(" ")
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "reads", method == "GET" and not (self.local or self.streams))
        fixed = method == "GET" and "{" not in path
        assert fixed or not self.leaderless, "without a leader only reads of the node are answered"

    @property
    def flags(self) -> dict[str, bool]:
        """The default of each flag of its query and body, by name."""
        return {each.name: each.default for each in self._members if isinstance(each, Flag)}

    @property
    def names_group(self) -> bool:
        """Whether the query or the body names a group; absent, it is the default group."""
        return any(member.name == "group" for member in self._members)

    @property
    def _members(self) -> tuple[Member[Any], ...]:
        """The members of its query and body."""
        takes = self.takes
        body = takes.shape.members if takes is not None and isinstance(takes.shape, Shape) else ()
        return (*self.query, *body)

    @property
    def refusals(self) -> tuple[int, ...]:
        """HTTP statuses of its refusals, without those that every call may answer."""
        statuses = set(self.problems)
        if "{" in self.path.removeprefix("/v1/ns/{ns}"):
            statuses.add(429 if self.makes else 404)
        if self.takes is not None:
            statuses.add(415)
        return tuple(sorted(statuses))

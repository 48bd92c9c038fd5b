"""What is said of a call of the API: its name, its path, what it takes, answers and needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from delaylog.storage.members import Flag, Member, Shape

Right: TypeAlias = Literal[
    "send", "receive", "read", "change", "admin", "operate", "metrics", "dashboard"
]
"""What a caller must be allowed; nothing asks for it yet."""


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
class ApiCall:
    """One call."""

    name: str
    asked: str
    """Method and path."""
    right: Right
    doc: str
    answer: str
    """Schema of the answer."""
    takes: Takes | None = None
    query: tuple[Member[Any], ...] = ()
    query_needed: tuple[Member[Any], ...] = ()
    """Those of them that cannot be left out."""
    problems: tuple[int, ...] = ()
    """Statuses of refusals beyond those that follow from the rest; see `refusals`."""
    makes: bool = False
    """It makes what its path names, if that is not there."""
    other: tuple[int, str] | None = None
    """Another good status, and the schema of its answer."""
    bulk_answer: bool = False
    arrow_answer: bool = False
    repeatable: bool = False
    """Twice is as once, so that a client whose answer was lost may ask again. Any GET is."""
    local: bool = False
    """Every node answers for itself, leader or not."""

    method: str = field(init=False)
    path: str = field(init=False)

    def __post_init__(self) -> None:
        method, _, path = self.asked.partition(" ")
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "path", path)

    @property
    def reads(self) -> bool:
        """Whether it only looks, so that with `?read=local` any node answers it."""
        return self.method == "GET" and not self.local

    @property
    def flags(self) -> dict[str, bool]:
        """What each flag of its query and its body is where nothing is said."""
        takes = self.takes
        body = takes.shape.members if takes is not None and isinstance(takes.shape, Shape) else ()
        return {each.name: each.default for each in (*self.query, *body) if isinstance(each, Flag)}

    @property
    def refusals(self) -> tuple[int, ...]:
        """Statuses of its refusals beyond those that any call may have."""
        said = set(self.problems)
        if "{" in self.path.removeprefix("/v1/ns/{ns}"):
            said.add(429 if self.makes else 404)
        if self.takes is not None:
            said.add(415)
        return tuple(sorted(said))

"""What a scene asks of an interface: one topic, the calls on it, and what it cannot say.

Every interface has an adapter with these methods. An adapter lists in `cannot` what its interface
has no words for; `needs` marks a scene with what it asks for, so that a scene is collected for
exactly the interfaces that can play it, and none is skipped. A method that needs an ability is
abstract, and fails in the classes that lack the ability.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from tests.waiting import PATIENCE_S

Scene = TypeVar("Scene", bound=Callable[..., Any])
TIMEOUT_S = 20
LEASED = {"leased": 1}

Ability = Literal[
    "array",  # several messages in one call, all of them or none
    "begin",  # a receive without an attempt, and the beginning of one
    "backoff",  # a look shows a message's own backoff
    "bytes",  # bodies that are no text
    "cancel",  # a message that waits is deleted, one under lease is not
    "choose",  # a receive by ids, or by tags in more than one way
    "clock",  # time is moved by the scene
    "delay",  # a nack with a delay
    "extend",  # a lease is made longer, or given back
    "failures",  # an attempt fails for a reason, and dead letters are chosen by theirs
    "fields",  # key, tags, headers and priority of a message
    "force",  # a change in spite of a lease
    "groups",  # a receive in a named group
    "jobs",  # a change of all messages that match a filter
    "list",  # messages by state, tag and key; dead letters
    "merge",  # what becomes of a repeated id
    "peek",  # ready messages without a lease
    "reasons",  # why a change was not made, what a send came to
    "replay",  # a dead message lives again
    "reschedule",  # another time for a message that waits
    "reject",  # a message under lease is made a dead letter
    "results",  # whether each settled message was still leased
    "schedules",  # messages that recur
    "tags",  # a receive by tags
    "targets",  # URLs to which the messages of a group are pushed
]
ABILITIES: frozenset[Ability] = frozenset(get_args(Ability))
METHODS: dict[Ability, tuple[str, ...]] = {
    "array": ("send_many",),
    "begin": ("begin",),
    "cancel": ("cancel",),
    "clock": ("advance",),
    "extend": ("extend",),
    "failures": ("life",),
    "list": ("listed", "dead"),
    "peek": ("peek",),
    "reject": ("reject",),
    "replay": ("replay",),
    "reschedule": ("reschedule",),
    "schedules": ("plain",),
}
"""Those that an interface has only with an ability."""
OF_BROKERS = frozenset({"job", "jobs", "stop_job", "all_schedules", "all_targets"})
"""Calls of plain clients that are about no topic."""


def needs(*abilities: Ability) -> Callable[[Scene], Scene]:
    """Mark a scene with what an interface has to be able to do for it."""
    assert ABILITIES.issuperset(abilities), abilities

    def mark(scene: Scene) -> Scene:
        scene.__dict__["needs"] = frozenset(abilities)
        return scene

    return mark


class Refused(Exception):
    """A call was refused; `code` is that of the table of error codes."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Sent:
    """What a send came to; the result is None where the interface does not say it."""

    id: str
    result: str | None = None


@dataclass(frozen=True)
class Taken:
    """One message under lease. `handle` is what the interface settles it by."""

    id: str
    body: bytes
    attempts: int
    due_ms: int
    handle: Any
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True)
class Seen:
    """A message as a look at it shows it."""

    state: str
    due_ms: int
    attempts: int
    cause: str | None = None
    backoff: dict[str, float] | None = None
    reason: str | None = None


class Face(ABC):
    """One interface of a broker, and one topic on it."""

    name: str
    cannot: frozenset[Ability] = frozenset()
    topic: str

    def __init_subclass__(cls) -> None:
        """Replace the methods of what a class cannot do by one that fails."""
        assert cls.cannot <= ABILITIES, cls.cannot
        for ability in cls.cannot:
            for name in METHODS.get(ability, ()):
                assert name not in vars(cls), f"{cls.__name__} has {name} and cannot {ability}"
                setattr(cls, name, unable)

    # ------------------------------------------------------------------ messages

    @abstractmethod
    def send(self, body: bytes | str, **fields: Any) -> Sent: ...

    @abstractmethod
    def send_many(self, messages: Sequence[dict[str, Any]]) -> list[Sent]:
        """In one call; members are those of HTTP."""

    @abstractmethod
    def receive(self, max: int = 1, **asked: Any) -> list[Taken]: ...

    @abstractmethod
    def ack(self, taken: Sequence[Taken]) -> list[str]:
        """What became of each, where the interface has results."""

    @abstractmethod
    def nack(self, taken: Sequence[Taken], **how: Any) -> list[str]:
        """`how`: a delay, or a reason."""

    @abstractmethod
    def extend(self, taken: Sequence[Taken], lease_ms: int) -> list[str]: ...

    @abstractmethod
    def begin(self, taken: Sequence[Taken], lease_ms: int | None = None) -> list[str]: ...

    @abstractmethod
    def reject(self, taken: Sequence[Taken], **how: Any) -> list[str]: ...

    @abstractmethod
    def peek(self, **asked: Any) -> list[str]:
        """Ids."""

    @abstractmethod
    def get(self, id: str, group: str | None = None) -> Seen | None: ...

    @abstractmethod
    def cancel(self, id: str, *, force: bool = False) -> str:
        """`done`, or why not: a state or `unknown`; `not done` where the reason is not said."""

    @abstractmethod
    def reschedule(self, id: str, **when: int) -> str:
        """As `cancel`."""

    @abstractmethod
    def replay(self, *ids: str) -> list[str]: ...

    @abstractmethod
    def listed(self, **filters: Any) -> dict[str, str]:
        """States by id, in the order of the list."""

    @abstractmethod
    def dead(self, **filters: str) -> list[tuple[str, str | None, str | None, list[str]]]:
        """Dead letters: id, cause, reason, and the steps of their life."""

    @abstractmethod
    def life(self, id: str) -> list[tuple[str, str | None, str | None]]:
        """The steps of a message that name a consumer or a reason: event, consumer, reason."""

    @abstractmethod
    def plain(self, name: str, *given: Any, **members: Any) -> dict[str, Any]:
        """A call of the SDK's plain client by its name, and the members of its answer."""

    # ------------------------------------------------------------------ the topic

    @abstractmethod
    def configure(self, **settings: Any) -> None: ...

    @abstractmethod
    def exists(self) -> bool:
        """Whether the topic exists."""

    @abstractmethod
    def update(self, **settings: Any) -> dict[str, Any]:
        """Change some settings; returns all."""

    @abstractmethod
    def counts(self, group: str | None = None) -> dict[str, int] | None:
        """Messages by state, without those states in which there is none."""

    @abstractmethod
    def put_group(self, group: str) -> None: ...

    @abstractmethod
    def drop_group(self, group: str) -> None: ...

    @abstractmethod
    def purge(self, *, force: bool = False) -> int: ...

    @abstractmethod
    def pause(self, *, on: bool) -> None: ...

    @abstractmethod
    def drop(self, *, force: bool = False) -> None: ...

    # ------------------------------------------------------------------ time

    @abstractmethod
    def now_ms(self) -> int:
        """The broker's time."""

    @abstractmethod
    def advance(self, ms: int) -> None:
        """Move the clock."""

    def await_message(self, **asked: Any) -> Taken:
        """The next message, which may come due or come back meanwhile."""
        (taken,) = self.receive(wait_ms=TIMEOUT_S * 1000, **asked)
        return taken

    def await_counts(self, **wanted: int) -> None:
        """Return once the topic has these counts."""
        self.until(lambda: self.counts() == wanted)

    def until(self, true: Callable[[], bool]) -> None:
        """Let time pass until something is so."""
        end_s = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end_s, self.counts()
            self.pass_a_moment()

    def pass_a_moment(self) -> None:
        time.sleep(0.005)


def unable(face: Face, *given: Any, **options: Any) -> Any:
    raise AssertionError(f"{face.name} cannot do this; the scene has to name what it needs")


def steps(life: Sequence[dict[str, Any]]) -> list[tuple[str, str | None, str | None]]:
    """What a life says of consumers and reasons."""
    named = [step for step in life if "consumer" in step or "reason" in step]
    return [(step["event"], step.get("consumer"), step.get("reason")) for step in named]


def nonzero(counts: dict[str, int]) -> dict[str, int]:
    return {state: count for state, count in counts.items() if count}

"""One schedule: what a caller has said about it, and how far it has come.

`Progress` is what a firing changes. It consists of integers, since each firing writes it to the
log. Times are Unix ms; 0 means none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgpack

from delaylog.broker.rules.schedules.firings import WINDOW_MS, CatchUp
from delaylog.broker.rules.schedules.timing import Timing
from delaylog.contract.calls.schedules import RULES

AHEAD_MS: Final = 1_000
"""How long before its due time a firing becomes a message: longer than a commit takes."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a schedule does beside its timing; see RULE_MEMBERS."""

    jitter_ms: int = 0
    catch_up: str = "latest"
    catch_up_window_ms: int = WINDOW_MS
    overlap: str = "allow"

    @property
    def ahead_ms(self) -> int:
        """How long before its due time a firing becomes a message.

        The wheel releases such a message at its millisecond. Overlap can be judged at the due time
        only, and a firing with jitter needs no millisecond.
        """
        return AHEAD_MS if self.overlap == "allow" and not self.jitter_ms else 0

    @property
    def after_outage(self) -> CatchUp:
        """The rule for instants of an outage."""
        return CatchUp(self.catch_up, self.catch_up_window_ms)

    def as_dict(self) -> dict[str, Any]:
        """All members."""
        return {name: getattr(self, name) for name in Rules.__dataclass_fields__}


assert RULES.names == Rules.__dataclass_fields__.keys()


class Spec(NamedTuple):
    """What a caller has said: the members of a request, checked."""

    timing: Timing
    rules: Rules
    message: bytes
    """A msgpack map: `body`, and `fields` with the members of a send."""


@dataclass(slots=True)
class Progress:
    """How far a schedule has come."""

    next_ms: int = 0
    """The next instant; 0 when it has ended, or nothing more matches."""
    due_ms: int = 0
    """When that instant fires: the instant and its jitter."""
    n: int = 0
    """Number of firings."""
    last_ms: int = 0
    """The instant, or the time of a change, from which the next instant was computed."""
    wall_s: int = 0
    """Its wall time by the zone data of then; 0 for a timing that follows elapsed time."""
    fired_ms: int = 0
    """The instant of the newest firing, by which its message is found."""
    buffered_ms: int = 0
    """The instant that waits for the end of that message."""
    skipped: int = 0
    """Number of instants that overlap, an outage or a pause has passed over."""

    def give_up_buffered(self) -> None:
        """The instant that waits does not fire any more."""
        self.skipped += self.buffered_ms != 0
        self.buffered_ms = 0

    def values(self) -> list[int]:
        """All numbers, in the order of the class."""
        return list(_VALUES(self))

    def copy(self) -> Progress:
        """A copy that may change: one in the table is replaced, never changed."""
        return Progress(*_VALUES(self))


PROGRESS: Final = tuple(Progress.__dataclass_fields__)
_VALUES: Final = attrgetter(*PROGRESS)


class Schedule:
    """A schedule of a topic. Numbers are never used again.

    The table makes one when it is asked; a change of it changes nothing in the table.
    """

    __slots__ = ("name", "note", "number", "progress", "spec", "topic")

    def __init__(self, number: int, topic: int, name: str, spec: Spec, note: str | None) -> None:
        self.number = number
        self.topic = topic
        self.name = name
        self.spec = spec
        self.note = note
        """Why it is paused; None while it runs."""
        self.progress = Progress()

    @property
    def paused(self) -> bool:
        """Whether it fires nothing until it is resumed."""
        return self.note is not None

    def wake_ms(self, progress: Progress) -> int:
        """When the next instant is to be decided: at its due time, or a little ahead of it."""
        return max(progress.due_ms - self.spec.rules.ahead_ms, 0)

    def id_at(self, instant_ms: int) -> str:
        """The id of the message of an instant."""
        return f"{self.name}@{instant_ms}"

    def at(self, progress: Progress) -> Schedule:
        """The same schedule, as far as it has come."""
        other = Schedule(self.number, self.topic, self.name, self.spec, self.note)
        other.progress = progress
        return other

    def pack(self) -> bytes:
        """What frames and files of definitions store."""
        (timing, rules, message), progress = self.spec, self.progress.values()
        said = (timing.as_dict(), rules.as_dict(), message, self.note)
        return bytes(msgpack.packb((self.number, self.topic, self.name, *said, progress)))

    @classmethod
    def unpack(cls, packed: bytes) -> Schedule:
        """A schedule as it was packed."""
        number, topic, name, timing, rules, message, note, progress = msgpack.unpackb(packed)
        spec = Spec(_shared(Timing, timing), _shared(Rules, rules), message)
        one = cls(number, topic, name, spec, note)
        one.progress = Progress(*progress)
        return one


_KNOWN: Final[dict[object, Any]] = {}
"""Timings and rules: many schedules have equal ones, and share them."""
_KNOWN_MAX: Final = 4_096


def shared(value: Any) -> Any:
    """The value, or an equal one that is known."""
    if len(_KNOWN) >= _KNOWN_MAX:
        _KNOWN.clear()
    return _KNOWN.setdefault(value, value)


def _shared(kind: Any, members: Mapping[str, Any]) -> Any:
    return shared(kind(**members))

"""One schedule: what a caller has said about it, and how far it has come.

`Progress` is what a firing changes. It consists of integers, since each firing writes it to the
log. Times are Unix ms; 0 means none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgpack

from delaylog.broker.engine.snapshot_list import SnapshotNode
from delaylog.broker.schedules.catch_up import WINDOW_MS, CatchUp
from delaylog.broker.schedules.timing import Timing
from delaylog.storage.calls.schedule_members import RULES

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
    def after_outage(self) -> CatchUp:
        """The rule for instants of an outage."""
        return CatchUp(self.catch_up, self.catch_up_window_ms, self.jitter_ms)

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
    """Number of instants that overlap has skipped."""

    def values(self) -> list[int]:
        """All numbers, in the order of the class."""
        return list(_VALUES(self))

    def copy(self) -> Progress:
        """A copy that may change: one in the table is replaced, never changed."""
        return Progress(*_VALUES(self))


PROGRESS: Final = tuple(Progress.__dataclass_fields__)
_VALUES: Final = attrgetter(*PROGRESS)


class Schedule(SnapshotNode):
    """A schedule of a topic. Numbers are never used again."""

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
        """When the next instant is to be decided: at its due time, or a little ahead of it.

        A message that is sent ahead is released by the wheel at its millisecond. Overlap can be
        judged at the due time only.
        """
        ahead_ms = AHEAD_MS if self.spec.rules.overlap == "allow" else 0
        return max(progress.due_ms - ahead_ms, 0)

    def id_at(self, instant_ms: int) -> str:
        """The id of the message of an instant."""
        return f"{self.name}@{instant_ms}"

    def pack(self) -> bytes:
        """What frames and checkpoints store."""
        packed = [_PACK(each) for each in (self.number, self.topic, self.name)]
        packed += _packed_rules(self.spec.timing, self.spec.rules)
        rest = (self.spec.message, self.note, self.progress.values())
        packed += [_PACK(each) for each in rest]
        return _ARRAY_OF_8 + b"".join(packed)

    @classmethod
    def unpack(cls, row: list[Any]) -> Schedule:
        """A schedule from an unpacked row."""
        number, topic, name, timing, rules, message, note, progress = row
        spec = Spec(_shared(Timing, timing), _shared(Rules, rules), message)
        one = cls(number, topic, name, spec, note)
        one.progress = Progress(*progress)
        return one


_KNOWN: Final[dict[object, Any]] = {}
"""Timings and rules: many schedules have equal ones, and share them."""
_KNOWN_MAX: Final = 65_536


def shared(value: Any) -> Any:
    """The value, or an equal one that is known."""
    if len(_KNOWN) >= _KNOWN_MAX:
        _KNOWN.clear()
    return _KNOWN.setdefault(value, value)


def _shared(kind: Any, members: Mapping[str, Any]) -> Any:
    return shared(kind(**members))


@lru_cache(maxsize=_KNOWN_MAX)
def _packed_rules(timing: Timing, rules: Rules) -> tuple[bytes, bytes]:
    """A timing and rules, packed: a checkpoint packs every schedule, and many have equal ones."""
    return _PACK(timing.as_dict()), _PACK(rules.as_dict())


_PACK: Final = msgpack.Packer().pack
_ARRAY_OF_8: Final = b"\x98"

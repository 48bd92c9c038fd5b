"""What a LEASE frame says of why its messages are late, so that the log can tell it later.

Only a frame with a message later than `LATE_MS` has a note, and only one a second of each group:
spans are of the group, so a life line reads them from any of its frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

from delaylog.broker.engine.late.timeline import CAUSES, Span
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group

LATE_MS: Final = 100
"""A message handed out this much after its due time is worth a note in the log."""
NOTE_EVERY_MS: Final = 1_000
SPANS_MAX: Final = 32
Note: TypeAlias = Sequence[Sequence[Any]]


def late_note(state: EngineState, topic: Topic, group: Group, due_ms: int, now_ms: int) -> Note:
    """[cause, from, until] of the spans since the group's last note.

    So the notes together have all spans, whichever of the messages was due first. `due_ms`: the
    earliest due time.
    """
    if now_ms - due_ms < LATE_MS:
        return []
    place = topic.number, group.number
    timeline = state.timeline
    noted_ms = timeline.noted.get(place, 0)
    if 0 <= now_ms - noted_ms < NOTE_EVERY_MS:
        return []
    timeline.noted[place] = now_ms
    key = topic.namespace, topic.name, group.name
    spans = timeline.spans(key, place, state.leases.leased(*place), now_ms)
    since_ms = min(noted_ms, now_ms)
    ended = ((now_ms if span.until_ms is None else span.until_ms, span) for span in spans)
    last = sorted((each for each in ended if each[0] >= since_ms), key=itemgetter(0))
    return [[span.cause, span.from_ms, until_ms] for until_ms, span in last[-SPANS_MAX:]]


def noted_spans(note: Note) -> list[Span]:
    """The spans of a note; causes of a later release are left out."""
    return [Span(from_ms, until_ms, cause) for cause, from_ms, until_ms in note if cause in CAUSES]

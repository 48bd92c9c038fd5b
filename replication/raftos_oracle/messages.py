"""The messages of an election: their kinds, and the checks of their fields.

raftos calls the method that a message names and trusts its fields. So only the kinds of this table
are accepted, each with exactly its fields; fields about raftos' replicated log must state that it
is empty. A message is sent in an envelope: version, sender, receiver, stamp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from raftos.serializers import JSONSerializer

from delaylog.replication.configuration import NODE_MAX
from delaylog.replication.raftos_oracle.refusals import Refusal, Refused
from delaylog.replication.raftos_oracle.sessions import Stamp
from delaylog.replication.raftos_oracle.term_file import TERM_MAX
from delaylog.replication.watermark import EpochTick

Message: TypeAlias = dict[str, Any]
Check: TypeAlias = Callable[[object], bool]

VERSION: Final = 1
RANDOM_BYTES: Final = 16
"""Size of a life and of a challenge; sent as hex digits."""
DATAGRAM_BYTES_MAX: Final = 2_048
"""The longest message has some 700 bytes."""

_U64_MAX: Final = (1 << 64) - 1


def _is_number(value: object, most: int = _U64_MAX) -> bool:
    return type(value) is int and 0 <= value <= most  # a bool is no number here


def _is_term(value: object) -> bool:
    return _is_number(value, TERM_MAX)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str)


def _is_zero(value: object) -> bool:
    return _is_number(value, 0)


def _is_empty_list(value: object) -> bool:
    return value == []


def _is_log_state(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _is_tick(value: object) -> bool:
    """None, or the five numbers of an EpochTick; the last is a wall time and may be negative."""
    if value is None:
        return True
    if not isinstance(value, list) or len(value) != len(EpochTick._fields):
        return False
    *numbers, wall_ms = value
    return all(map(_is_number, numbers)) and type(wall_ms) is int and abs(wall_ms) <= _U64_MAX >> 1


def _is_random(value: object) -> bool:
    return isinstance(value, str) and len(value) == 2 * RANDOM_BYTES


def _is_random_or_none(value: object) -> bool:
    return value is None or _is_random(value)


SHAPES: Final[Mapping[str, Mapping[str, Check]]] = {
    # How nodes learn each other's lives: a random challenge, and the answer to one.
    "hello": {"ask": _is_random_or_none, "answer": _is_random_or_none},
    # Before an election: would you vote for me? It changes no term.
    "pre_vote": {"term": _is_term, "round": _is_number, "standing": _is_log_state},
    "pre_vote_response": {"term": _is_term, "round": _is_number, "vote_granted": _is_bool},
    "request_vote": {
        "term": _is_term,
        "candidate_id": _is_name,
        "last_log_index": _is_zero,
        "last_log_term": _is_zero,
        "standing": _is_log_state,
        # The leader has chosen the candidate: then the length of its log does not matter.
        "by_transfer": _is_bool,
    },
    "request_vote_response": {"term": _is_term, "vote_granted": _is_bool},
    # The heartbeat.
    "append_entries": {
        "term": _is_term,
        "leader_id": _is_name,
        "commit_index": _is_zero,
        "request_id": _is_number,
        "entries": _is_empty_list,
        "prev_log_index": _is_zero,
        "prev_log_term": _is_zero,
        "tick": _is_tick,
    },
    "append_entries_response": {
        "term": _is_term,
        "success": _is_bool,
        "last_log_index": _is_zero,
        "request_id": _is_number,
    },
    # From a leader that hands over: become a candidate at once, without a pre-vote.
    "timeout_now": {"term": _is_term},
}


class Envelope(NamedTuple):
    """The deciphered contents of a datagram."""

    source: int
    target: int
    stamp: Stamp
    message: Message


def pack(envelope: Envelope) -> bytes:
    """The bytes of an envelope in clear text."""
    source, target, stamp, message = envelope
    packed: bytes = JSONSerializer.pack([VERSION, source, target, *stamp, message])
    return packed


def unpack(raw: bytes) -> Envelope:
    """The envelope, whose message is not checked yet. Raises Refused."""
    try:
        version, source, target, life, counter, message = JSONSerializer.unpack(raw)
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused(Refusal.MALFORMED) from error
    sound = (
        version == VERSION
        and _is_number(source, NODE_MAX)
        and _is_number(target, NODE_MAX)
        and _is_random(life)
        and _is_number(counter)
        and counter > 0
        and isinstance(message, dict)
    )
    if not sound:
        raise Refused(Refusal.MALFORMED)
    return Envelope(source, target, Stamp(life, counter), message)


def check(message: Message, source_id: str) -> None:
    """Check that a correct node could have sent the message. Raises Refused."""
    kind = message.get("type")
    shape = SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise Refused(Refusal.UNKNOWN_TYPE)
    if message.keys() - {"type"} != shape.keys():
        raise Refused(Refusal.MALFORMED)
    if not all(sound(message[name]) for name, sound in shape.items()):
        raise Refused(Refusal.MALFORMED)
    for name in ("candidate_id", "leader_id"):
        # A node sends only for itself: otherwise a vote would count for another node.
        if message.get(name, source_id) != source_id:
            raise Refused(Refusal.MALFORMED)

"""Claims: many messages held under a name, made once however often it is asked for.

Making takes ready messages as receive does, a slice at a time, each under a lease of its own and
with the claim's number in its frame, so a claim that was cut short goes on where it stood. It is
open, and only then told to anybody, when its last slice is in the log. Settling is decided by one
frame, which also keeps its leases from ending meanwhile; the slices follow, after a crash too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from delaylog.broker.engine.apply.claim_frames import append_claim
from delaylog.broker.engine.deliver.claim_table import EXPIRED, MAKING, OPEN, SETTLING, Claim
from delaylog.broker.engine.deliver.deliverable import records_of
from delaylog.broker.engine.deliver.filters import TagFilter
from delaylog.broker.engine.deliver.receiving import receive
from delaylog.broker.engine.deliver.settling import Receipts, ack, nack
from delaylog.broker.engine.deliver.taking import Asked
from delaylog.broker.engine.errors import (
    BadRequestError,
    ConflictError,
    GoneError,
    QuotaRefusal,
)
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.questions import every
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.work import Work

SLICE_ROWS: Final = 4_096
"""Messages of one lease, taken or settled in one slice."""
AHEAD_SLICES: Final = 16
"""So many slices are appended before the log is waited for."""
HOLD_MS: Final = 60_000
"""What is being made or settled does not end by itself for so long."""
_EMPTY_TRIES: Final = 64
"""So often is looked again for messages behind those that may not be handed out."""


class ClaimRows(NamedTuple):
    """Messages of a claim, in columns."""

    origins: Int64Array
    rows: RowArray
    records: bytes
    attempts: Int64Array
    leases: list[tuple[int, int]]
    """Of each lease how many of them it has."""


# --------------------------------------------------------------------------- making


def begin_claim(
    state: EngineState,
    topic: Topic,
    group: Group,
    name: str,
    asked: Asked,
    *,
    lease_ms: int,
) -> Claim:
    """The claim of this name: as it stands, or one that has to be made.

    Raises GoneError for one that has ended.
    """
    count_max, now_ms, only = asked.count_max, asked.now_ms, asked.only
    expire_claims(state, now_ms)
    claim = state.claims.find(topic.number, group.number, name)
    if claim is None:
        if not 1 <= count_max <= state.limits.claim_rows_max:
            raise BadRequestError(
                f"a claim has 1 to {state.limits.claim_rows_max} messages", field="max"
            )
        if len(state.claims) >= state.limits.claims_max:
            raise QuotaRefusal(f"there are {state.limits.claims_max} claims; settle some first")
        number = state.claims.next_number
        members = {
            "op": "begin",
            "number": number,
            "topic": topic.number,
            "group": group.number,
            "name": name,
            "max": count_max,
            "lease_ms": lease_ms,
            "deadline": now_ms + max(lease_ms, HOLD_MS),
            "only": None if only is None else {"tags": sorted(only.tags), "mode": only.mode},
        }
        append_claim(state, members, now_ms)
        made = state.claims.get(number)
        assert made is not None
        return made
    if not claim.living:
        raise _gone(claim)
    return claim


def make_work(state: EngineState, claim: Claim, clock: Callable[[], int]) -> Work:
    """Take messages for a claim until it has what it may have, or nothing is ready; open it."""
    empty = slices = 0
    while claim.state == MAKING:
        topic = state.by_number.get(claim.topic)
        group = state.group(claim.topic, claim.group)
        if topic is None or group is None:
            return
        now_ms = clock()
        place = (topic.number, group.number)
        state.woken.discard(place)
        before = claim.count
        if claim.count < claim.count_max:
            receive(
                state,
                topic,
                group,
                Asked(
                    count_max=min(claim.count_max - claim.count, SLICE_ROWS),
                    now_ms=now_ms,
                    only=None if claim.only is None else _filter(claim.only),
                ),
                lease_ms=max(claim.deadline_ms - now_ms, 1),
                claim=claim.number,
            )
        if claim.count == before:
            # There may be more behind what has ended, or waits for its key.
            empty += 1
            if place not in state.woken or empty > _EMPTY_TRIES:
                _go_on(state, claim, "open", OPEN, now_ms + claim.lease_ms, now_ms)
                state.woken.add(place)
                return
        else:
            empty = 0
        slices += 1
        if slices % AHEAD_SLICES == 0:
            yield from state.until_committed()
        yield None


def _filter(members: dict[str, Any]) -> TagFilter:
    return TagFilter(frozenset(members["tags"]), members["mode"])


def _go_on(
    state: EngineState, claim: Claim, op: str, to: str, deadline_ms: int, now_ms: int
) -> None:
    members = {"op": op, "number": claim.number, "state": to, "deadline": deadline_ms}
    append_claim(state, members, now_ms)


def _end(state: EngineState, claim: Claim, to: str, now_ms: int) -> None:
    append_claim(state, {"op": "end", "number": claim.number, "state": to}, now_ms)


# --------------------------------------------------------------------------- reading


def find_claim(state: EngineState, topic: Topic, group: Group, name: str) -> Claim | None:
    """The claim of this name, if it is known; it may have ended."""
    return state.claims.find(topic.number, group.number, name)


def check_open(claim: Claim, now_ms: int) -> None:
    """Refuse a claim that has ended, is settled, or is not whole yet."""
    if not claim.living or claim.state in SETTLING or claim.deadline_ms <= now_ms:
        raise _gone(claim)
    if claim.state == MAKING:
        raise ConflictError("this claim is being made; ask for it by POST first", state=MAKING)


def claim_rows(state: EngineState, claim: Claim, start: int, stop: int) -> ClaimRows:
    """Messages [start, stop) of a claim, the same ones however often it is asked."""
    refs, attempts, leases = claim.part(start, stop)
    if len(refs) and not every(state.hours.known(refs)):
        raise GoneError("messages of this claim were settled one by one, and have gone", state=OPEN)
    rows = state.hours.rows(refs)
    records = records_of(state, refs, rows)
    origins = rows["origin"].astype("i8")
    return ClaimRows(origins, rows, records, attempts.astype("i8"), leases)


def claim_bytes(state: EngineState, claim: Claim, start: int, stop: int) -> int:
    """How large their records are."""
    refs, _, _ = claim.part(start, stop)
    known = refs[state.hours.known(refs)]
    return int(state.hours.rows(known)["size"].sum(dtype="i8"))


# --------------------------------------------------------------------------- settling


def extend_claim(state: EngineState, claim: Claim, lease_ms: int, now_ms: int) -> None:
    """Let all of it end `lease_ms` from now."""
    if not 1 <= lease_ms <= state.limits.lease_ms_max:
        raise BadRequestError(
            f"lease_ms must lie from 1 to {state.limits.lease_ms_max}", field="lease_ms"
        )
    expire_claims(state, now_ms)
    check_open(claim, now_ms)
    _go_on(state, claim, "extend", OPEN, now_ms + lease_ms, now_ms)


def decide(state: EngineState, claim: Claim, settling: str, now_ms: int) -> bool:
    """Decide that all of it is acked ("acking") or given back ("releasing").

    False if that was decided before. `settle_work` does the rest.
    """
    expire_claims(state, now_ms)
    if claim.state in (settling, SETTLING[settling]):
        return False
    if claim.state in SETTLING or claim.state in SETTLING.values():
        raise ConflictError(f"this claim was {_ended(claim)} before", state=_ended(claim))
    check_open(claim, now_ms)
    deadline_ms = max(claim.deadline_ms, now_ms + HOLD_MS)
    _go_on(state, claim, "settle", settling, deadline_ms, now_ms)
    return True


def settle_work(state: EngineState, claim: Claim, clock: Callable[[], int]) -> Work:
    """Settle lease after lease of a claim for which that is decided, and end it."""
    # What is given back comes first again: the last ones go back before those in front of them.
    order = claim.leases[:: -1 if claim.state == "releasing" else 1]
    for slices, lease in enumerate(order):
        topic = state.by_number.get(claim.topic)
        if topic is None or claim.state not in SETTLING:
            return
        if state.leases.get(lease) is None:
            continue
        if claim.state == "acking":
            ack(state, topic, Receipts(lease), clock())
        else:
            nack(state, topic, Receipts(lease), clock(), delay_ms=0)
        if slices % AHEAD_SLICES == AHEAD_SLICES - 1:
            yield from state.until_committed()
        yield None
    if claim.state in SETTLING:
        _end(state, claim, SETTLING[claim.state], clock())


def left_over(state: EngineState) -> list[Claim]:
    """Claims whose settlement has begun, whether or not the call that began it still runs."""
    return [claim for claim in state.claims.living() if claim.state in SETTLING]


def settle_left_over(state: EngineState, clock: Callable[[], int]) -> Work:
    """Finish every settlement that has begun, since the call that began it may be gone.

    A call that still runs does no harm: each lease is settled by whichever comes first.
    """
    for claim in left_over(state):
        yield from settle_work(state, claim, clock)


def expire_claims(state: EngineState, now_ms: int) -> None:
    """End claims whose time is over. Their messages come back as those of any lease do.

    Of one that nobody was told of, or that held nothing, nothing is remembered.
    """
    for claim in state.claims.past(now_ms):
        if claim.state == MAKING or claim.count == 0:
            append_claim(state, {"op": "forget", "number": claim.number}, now_ms)
        else:
            _end(state, claim, EXPIRED, now_ms)


def _gone(claim: Claim) -> GoneError:
    ended = EXPIRED if claim.state in (MAKING, OPEN) else _ended(claim)
    return GoneError(f"this claim is {ended}", state=ended)


def _ended(claim: Claim) -> str:
    """How it ended, or will."""
    return SETTLING.get(claim.state, claim.state)

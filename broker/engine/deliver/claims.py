"""Claims: up to a million messages leased under one name. Creating one is idempotent.

A claim takes ready messages as a receive does, in slices. Each slice has its own lease, whose frame
contains the claim's number, so a claim that a crash interrupted goes on where it was. It becomes
open, and is shown to clients, once its last slice is in the log. One frame decides to settle it and
extends its leases meanwhile; the slices of the settlement follow, after a crash too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from delaylog.broker.engine.apply.lease_frames import append_claim
from delaylog.broker.engine.deliver.claim_table import EXPIRED, MAKING, OPEN, SETTLING, Claim
from delaylog.broker.engine.deliver.receives import ReceiveRequest, receive, records_of
from delaylog.broker.engine.deliver.settlements import Receipts, ack, nack
from delaylog.broker.engine.errors import (
    BadRequestError,
    ConflictError,
    GoneError,
    QuotaRefusal,
)
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.contract.calls.shapes import CLAIM_ROWS_MAX, LEASE_MS_MAX
from delaylog.storage.columns import every
from delaylog.storage.layout import Int64Array, RowArray
from delaylog.storage.work import Work

CLAIMS_MAX: Final = 4_096
"""Claims that have not ended: each checkpoint has all of them."""
SLICE_ROWS: Final = 4_096
"""Messages of one lease, which are taken or settled in one slice."""
AHEAD_SLICES: Final = 16
"""Slices that may be appended before the log is committed."""
HOLD_MS: Final = 60_000
"""A claim that is being made or settled does not expire for this time."""
_EMPTY_TRIES: Final = 64
"""Receives without a message after which a claim counts as complete."""


class ClaimRows(NamedTuple):
    """Messages of a claim, in columns."""

    origins: Int64Array
    rows: RowArray
    records: bytes
    attempts: Int64Array
    leases: list[tuple[int, int]]
    """(lease, number of these messages) pairs."""


# --------------------------------------------------------------------------- making


def check_new_claim(state: EngineState, now_ms: int) -> None:
    """Raise HeldError or QuotaRefusal if no claim may begin; before a topic is made for one."""
    state.holding.check()
    expire_claims(state, now_ms)
    _check_count(state)


def _check_count(state: EngineState) -> None:
    if len(state.claims) >= CLAIMS_MAX:
        raise QuotaRefusal(f"there are {CLAIMS_MAX} claims; settle some first")


def begin_claim(
    state: EngineState,
    topic: Topic,
    group: Group,
    name: str,
    asked: ReceiveRequest,
    *,
    lease_ms: int,
) -> Claim:
    """The claim of this name, begun if there is none. Raises GoneError if it has ended, and
    HeldError.
    """
    state.holding.check()
    count_max, now_ms, only = asked.count_max, asked.now_ms, asked.only
    expire_claims(state, now_ms)
    claim = state.claims.find(topic.number, group.number, name)
    if claim is None:
        if not 1 <= count_max <= CLAIM_ROWS_MAX:
            raise BadRequestError(f"a claim has 1 to {CLAIM_ROWS_MAX} messages", field="max")
        _check_count(state)
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
    """Take messages for a claim until it has its maximum or nothing is ready; then open it."""
    empty = slices = 0
    while claim.state == MAKING:
        topic = state.by_number.get(claim.topic)
        group = state.group(claim.topic, claim.group)
        if topic is None or group is None:
            return
        now_ms = clock()
        group_key = (topic.number, group.number)
        state.marks.newly_ready.discard(group_key)
        before = claim.count
        if claim.count < claim.count_max:
            receive(
                state,
                topic,
                group,
                ReceiveRequest(
                    count_max=min(claim.count_max - claim.count, SLICE_ROWS),
                    now_ms=now_ms,
                    only=None if claim.only is None else _filter(claim.only),
                ),
                lease_ms=max(claim.deadline_ms - now_ms, 1),
                claim=claim.number,
            )
        if claim.count == before:
            # More may be ready behind messages that have ended or whose keys are locked.
            empty += 1
            if group_key not in state.marks.newly_ready or empty > _EMPTY_TRIES:
                _go_on(state, claim, "open", OPEN, now_ms + claim.lease_ms, now_ms)
                state.marks.newly_ready.add(group_key)
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
    """The claim of this name, which may have ended; None if it is not known."""
    return state.claims.find(topic.number, group.number, name)


def check_open(claim: Claim, now_ms: int) -> None:
    """Refuse a claim that has ended, is being settled, or is still being made."""
    if not claim.living or claim.state in SETTLING or claim.deadline_ms <= now_ms:
        raise _gone(claim)
    if claim.state == MAKING:
        raise ConflictError("this claim is being made; ask for it by POST first", state=MAKING)


def check_known(state: EngineState, claim: Claim, start: int, stop: int) -> None:
    """Refuse messages that were settled one by one, and whose hour was removed."""
    refs, _, _ = claim.part(start, stop)
    if len(refs) and not every(state.hours.known(refs)):
        raise GoneError("messages of this claim were settled one by one, and have gone", state=OPEN)


def claim_rows(state: EngineState, claim: Claim, start: int, stop: int) -> ClaimRows:
    """Messages [start, stop) of a claim; repeated reads give the same ones. Raises HeldError."""
    state.holding.check()
    check_known(state, claim, start, stop)
    refs, attempts, leases = claim.part(start, stop)
    rows = state.hours.rows(refs)
    records = records_of(state, refs, rows)
    origins = rows["origin"].astype("i8")
    return ClaimRows(origins, rows, records, attempts.astype("i8"), leases)


def claim_bytes(state: EngineState, claim: Claim, start: int, stop: int) -> int:
    """Size of the records of messages [start, stop)."""
    refs, _, _ = claim.part(start, stop)
    known = refs[state.hours.known(refs)]
    return int(state.hours.rows(known)["size"].sum(dtype="i8"))


# --------------------------------------------------------------------------- settling


def extend_claim(state: EngineState, claim: Claim, lease_ms: int, now_ms: int) -> None:
    """Set the deadline of the whole claim to `lease_ms` from now."""
    if not 1 <= lease_ms <= LEASE_MS_MAX:
        raise BadRequestError(f"lease_ms must lie from 1 to {LEASE_MS_MAX}", field="lease_ms")
    expire_claims(state, now_ms)
    check_open(claim, now_ms)
    _go_on(state, claim, "extend", OPEN, now_ms + lease_ms, now_ms)


def decide(state: EngineState, claim: Claim, settling: str, now_ms: int) -> bool:
    """Decide to ack ("acking") or to return ("releasing") all its messages.

    False if the same was decided before. `settle_work` carries it out.
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
    """Settle the leases of a claim one by one, as was decided, and end it."""
    # Returned messages go to the front of the queue, so the last ones are returned first.
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
    """Claims that are being settled, whether or not the call that began it still runs."""
    return [claim for claim in state.claims.living() if claim.state in SETTLING]


def settle_left_over(state: EngineState, clock: Callable[[], int]) -> Work:
    """Finish every settlement that has begun, since the call that began it may be gone.

    If that call still runs, each lease is settled by whichever of the two comes first.
    """
    for claim in left_over(state):
        yield from settle_work(state, claim, clock)


def expire_claims(state: EngineState, now_ms: int) -> None:
    """End claims past their deadline. Their messages return as those of any lease do.

    A claim that no client knows yet, or one without messages, is forgotten.
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
    """The state in which it ended, or will end."""
    return SETTLING.get(claim.state, claim.state)

"""Commands on transactions: begin, stage, commit, abort and expire, one TXN frame each.

A part is checked like a send when it is staged, so a commit cannot fail because of its content: it
compares row counts, decides, and answers at once. Every call is idempotent.

All winners of a commit, up to ten thousand, are compared as columns in one turn of the loop, since
nothing may be staged between the comparison and the decision. Comparing row counts is enough: an
attempt without one of its numbered parts lacks that part's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.apply.send_frames import apply_part, apply_transaction
from delaylog.broker.engine.errors import (
    BadRequestError,
    ConflictError,
    DiskFullRefusal,
    EngineError,
    GoneError,
    UnknownError,
)
from delaylog.broker.engine.send.merge import Merge
from delaylog.broker.engine.send.quotas import QuotaError, check_quota
from delaylog.broker.engine.send.sends import check_batch
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.commands import get_or_make_topic
from delaylog.broker.engine.transactions.table import (
    ENDED_KEPT_MS,
    ROW_BYTES,
    OpenTransaction,
    PartSummary,
    PartTable,
    Unpublished,
)
from delaylog.contract.calls.shapes import PART_NUMBER_MAX, STAGED_PARTS_MAX, TRANSACTION_AGE_MS
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.payloads import (
    EndedTransaction,
    PartIndexes,
    StagedPart,
    TxnOp,
    checksum,
    pack,
)
from delaylog.storage.messages.batch import Block, MessageBatch

# -------------------------------------------------------------------------- winners of a commit

_Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Winner:
    """An attempt to commit, and the number of rows that its writer has staged."""

    producer: str | None
    """None = the only producer of the transaction."""
    part: int
    attempt: int
    rows: int


def parts_of_winners(parts: PartTable, winners: Sequence[Winner]) -> PartIndexes:
    """Places of the parts that win, in log order. Raises an error for the first wrong winner."""
    if not winners:
        return np.zeros(0, np.uint32)
    staged, numbers = parts.columns, _numbers(parts, winners)
    ours = _keys(numbers, np.array([winner.part for winner in winners], np.uint64))
    theirs = _keys(staged["producer"].astype(np.uint64), staged["part"].astype(np.uint64))
    attempts = np.array([winner.attempt for winner in winners], np.uint64)
    group = _groups(np.concatenate([theirs, ours]), np.concatenate([staged["attempt"], attempts]))
    of_parts, of_winners = group[: len(staged)], group[len(staged) :]
    rows = np.zeros(int(group.max()) + 1, np.int64)
    np.add.at(rows, of_parts, staged["rows"])
    wrong = rows[of_winners] != np.array([winner.rows for winner in winners], np.int64)
    twice = np.ones(len(winners), np.bool_)
    twice[np.unique(ours, return_index=True)[1]] = False
    if (wrong | twice).any():
        item = int(np.argmax(wrong | twice))
        _refuse(parts, winners, item, int(rows[of_winners[item]]), twice=bool(twice[item]))
    won = np.zeros(len(rows), np.bool_)
    won[of_winners] = True
    return np.flatnonzero(won[of_parts]).astype(np.uint32)


def _numbers(parts: PartTable, winners: Sequence[Winner]) -> _Keys:
    """The producer of each winner as an index into the table, or an index behind its end."""
    known: dict[str | None, int] = {name: number for number, name in enumerate(parts.producers)}
    for name in {winner.producer for winner in winners}:
        known[name] = known.setdefault(_producer(parts, name), len(known))
    return np.array([known[winner.producer] for winner in winners], np.uint64)


def _producer(parts: PartTable, name: str | None) -> str:
    if name is not None:
        return name
    return parts.producers[0] if len(parts.producers) == 1 else ""


def _keys(producers: _Keys, parts: _Keys) -> _Keys:
    return producers << np.uint64(32) | parts


def _groups(keys: _Keys, attempts: _Keys) -> npt.NDArray[np.intp]:
    """A group number for each (key, attempt) pair, equal for equal pairs."""
    order = np.lexsort((attempts, keys))
    keys, attempts = keys[order], attempts[order]
    other = (keys[1:] != keys[:-1]) | (attempts[1:] != attempts[:-1])
    out = np.zeros(len(order), np.intp)
    out[order[1:]] = np.cumsum(other)
    return out


def _refuse(
    parts: PartTable, winners: Sequence[Winner], item: int, there: int, *, twice: bool
) -> None:
    winner = winners[item]
    if twice:
        raise BadRequestError(f"part {winner.part} has two winners", field="winners", item=item)
    raise ConflictError(
        f"attempt {winner.attempt} of part {winner.part} has staged {there} rows, "
        f"not {winner.rows}",
        field="winners",
        item=item,
        producer=_producer(parts, winner.producer),
        part=winner.part,
        attempt=winner.attempt,
        rows=there,
    )


# ------------------------------------------------------------------------------------- commands

OPEN_MAX: Final = 10_000
"""Open transactions: each is checked periodically."""
TTL_MS: Final = 3_600_000
"""An open transaction expires this long after the last call about it, unless it has its own time:
parts of a writer that died must not stay for ever."""
LOG_SHARE: Final = 4
"""Log that open transactions keep from being removed, for each byte that they may stage: beyond it
the transaction with the oldest part expires."""
RETRY_S = 5
"""Retry-After where only the end of another transaction makes room."""

Known = OpenTransaction | Unpublished | EndedTransaction


class PartName(NamedTuple):
    """The identity of a part."""

    producer: str
    part: int
    attempt: int
    number: int


def state_of(known: Known) -> str:
    """The state of a transaction, in a word."""
    if isinstance(known, OpenTransaction):
        return "open"
    return "committed" if isinstance(known, Unpublished) else known.state


def find_transaction(state: EngineState, name: str) -> Known:
    """A transaction by id. Raises UnknownError."""
    table = state.transactions
    known = table.open.get(name) or table.publishing(name) or table.ended(name)
    if known is None:
        raise no_transaction(name)
    return known


def no_transaction(name: str) -> UnknownError:
    """The refusal of a call about a transaction that is not known."""
    return UnknownError(f"there is no transaction {name[:64]!r}, or it ended long ago")


def _now(state: EngineState, name: str, now_ms: int) -> Known:
    """A transaction by id; expires it first if it is overdue."""
    known = find_transaction(state, name)
    if isinstance(known, OpenTransaction) and known.expires_ms <= now_ms:
        _expire(state, known, now_ms)
        return find_transaction(state, name)
    return known


# --------------------------------------------------------------------------- calls


def begin(
    state: EngineState, name: str | None, ttl_ms: int | None, now_ms: int, owner: str = ""
) -> str:
    """Begin a transaction, or give an open one more time; returns its id.

    A transaction that has ended stays as it is. `owner` = the principal that begins it, if any.
    """
    table = state.transactions
    name = f"{state.random.getrandbits(128):032x}" if name is None else name
    try:
        known: Known | None = _now(state, name, now_ms)
    except UnknownError:
        known = None
    if known is None:
        if len(table.open) >= OPEN_MAX:
            raise _quota(f"{len(table.open)} transactions are open already", "transactions")
        number, began_ms = table.next_number, now_ms
        ttl_ms = TTL_MS if ttl_ms is None else ttl_ms
    elif isinstance(known, OpenTransaction):
        number, began_ms = known.number, known.began_ms
        ttl_ms = known.ttl_ms if ttl_ms is None else ttl_ms
    else:
        return name
    expires_ms = min(now_ms + ttl_ms, began_ms + TRANSACTION_AGE_MS)
    by = {"by": owner} if owner else {}
    _append(
        state, now_ms, op=TxnOp.BEGIN, txn=number, id=name, ttl=ttl_ms, expires=expires_ms, **by
    )
    return name


class Content(NamedTuple):
    """The content of a part: rows for one topic."""

    key: tuple[str, str]
    """Namespace and name of the topic."""
    batch: MessageBatch


def check_numbers(part: PartName, count: int) -> None:
    """Raise BadRequestError if `count` parts from this one on have no numbers."""
    if part.number + count - 1 > PART_NUMBER_MAX:
        raise BadRequestError(
            f"a part has a number up to {PART_NUMBER_MAX}: {count} from {part.number} on are too "
            "many",
            field="number",
        )


def stage(
    state: EngineState,
    name: str,
    part: PartName,
    content: Content,
    now_ms: int,
    *,
    free_bytes: int,
) -> bool:
    """Stage a part; False if it was staged before.

    `free_bytes` = free space that committed rows do not need.
    """
    key, batch = content
    one = _open(state, name, now_ms)
    wire, topic = batch.wire, state.topics.get(key)
    wanted = PartSummary(-1 if topic is None else topic.number, batch.n, len(wire), checksum(wire))
    known = one.parts.find(*part)
    if known is not None:
        if known != wanted:
            raise ConflictError(
                f"number {part.number} of part {part.part}, attempt {part.attempt}, was staged "
                f"with other bytes: {known.rows} rows",
                field="number",
                rows=known.rows,
            )
        return False
    if batch.producer is not None:
        raise BadRequestError(
            "a part is known by its query: leave producer and sequence out of its body",
            field="producer",
        )
    check_numbers(part, 1)
    check_batch(state, batch, now_ms)
    _check_room(state, len(wire), batch.n, free_bytes)
    topic = get_or_make_topic(state, *key, now_ms)
    there = state.transactions.outstanding_of(topic.number)
    check_quota(state, topic, batch, Merge(), now_ms, outstanding=there)
    topic.used_ms = now_ms
    staged = StagedPart(
        one.number,
        *part,
        topic=topic.number,
        rows=batch.n,
        crc=wanted.crc,
        expires_ms=min(now_ms + one.ttl_ms, one.began_ms + TRANSACTION_AGE_MS),
    )
    position, _ = state.append(FrameKind.TXN, staged.encode(wire), now_ms)
    apply_part(state, staged, position, len(wire))
    return True


def commit(
    state: EngineState,
    name: str,
    winners: Sequence[Winner],
    now_ms: int,
    *,
    free_bytes: int,
) -> bool:
    """Commit: the winners are sent, other attempts are dropped; False if committed before."""
    known = _now(state, name, now_ms)
    if not isinstance(known, OpenTransaction):
        if state_of(known) == "committed":
            return False
        raise _gone(name, known)
    indexes = parts_of_winners(known.parts, winners)
    parts = known.parts.take(indexes)
    rows, size = int(parts["rows"].sum()), int(parts["bytes"].sum())
    if rows and free_bytes - size - rows * ROW_BYTES < state.limits.disk_reserve_bytes:
        raise DiskFullRefusal("the disk has no room for these messages; nothing was decided")
    members = {"op": TxnOp.COMMIT, "txn": known.number, "rows": rows}
    _append_payload(state, pack(members, indexes.astype("<u4", copy=False).tobytes()), now_ms)
    return True


def abort(state: EngineState, name: str, now_ms: int) -> bool:
    """Drop what was staged; False if it had ended without a commit before."""
    known = _now(state, name, now_ms)
    if isinstance(known, OpenTransaction):
        _append(state, now_ms, op=TxnOp.ABORT, txn=known.number)
        return True
    if state_of(known) == "committed":
        raise ConflictError(
            f"transaction {name!r} was committed: it cannot be aborted any more",
            state="committed",
        )
    return False


def end_overdue(state: EngineState, now_ms: int) -> None:
    """Expire overdue transactions, and forget those that ended long ago."""
    table = state.transactions
    for one in table.overdue(now_ms):
        _expire(state, one, now_ms)
    oldest = table.oldest_open()
    if oldest is not None:
        first = int(oldest.parts.columns["position"][0])
        if state.position - first > LOG_SHARE * state.limits.staged_bytes_max:
            _expire(state, oldest, now_ms)
    if table.forgets(now_ms - ENDED_KEPT_MS):
        _append(state, now_ms, op=TxnOp.FORGET, before=now_ms - ENDED_KEPT_MS)


# --------------------------------------------------------------------------- helpers


def _open(state: EngineState, name: str, now_ms: int) -> OpenTransaction:
    known = _now(state, name, now_ms)
    if isinstance(known, OpenTransaction):
        return known
    raise _gone(name, known)


def _gone(name: str, known: Known) -> GoneError:
    word = state_of(known)
    return GoneError(f"transaction {name!r} is {word}: it takes nothing more", state=word)


def _quota(what: str, quota: str) -> EngineError:
    return QuotaError(
        f"{what}; commit or abort some, or wait for them to expire",
        quota=quota,
        retry_after_s=RETRY_S,
    )


def _check_room(state: EngineState, size: int, rows: int, free_bytes: int) -> None:
    table, limits = state.transactions, state.limits
    if table.staged_bytes + size > limits.staged_bytes_max:
        raise _quota(f"{table.staged_bytes} bytes are staged already", "staged_bytes")
    if table.staged_parts >= STAGED_PARTS_MAX:
        raise _quota(f"{table.staged_parts} parts are staged already", "staged_parts")
    # Every byte is written twice: now, and when it is published.
    wanted = 2 * size + rows * ROW_BYTES + table.staged_debt_bytes
    if free_bytes - wanted < limits.disk_reserve_bytes:
        raise DiskFullRefusal("the disk has no room for what is staged; deliveries go on")


def _expire(state: EngineState, one: OpenTransaction, now_ms: int) -> None:
    _append(state, now_ms, op=TxnOp.EXPIRE, txn=one.number)


def _append(state: EngineState, now_ms: int, **members: Any) -> None:
    _append_payload(state, pack(members), now_ms)


def _append_payload(state: EngineState, payload: list[Block], now_ms: int) -> None:
    position, _ = state.append(FrameKind.TXN, payload, now_ms)
    apply_transaction(state, b"".join(payload), now_ms, position)

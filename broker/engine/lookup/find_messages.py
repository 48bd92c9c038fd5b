"""Find messages by id: from the id that a client has to the row where the message is now.

An id made by the broker is the origin's ref in hexadecimal (`ref_to_id` in `storage/layout.py`).
All others were chosen by clients, and are looked up in the id index; a hit is a hint, and is
checked against the row. The state at the origin points to the newest row.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Topic, shown_kinds
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import copy_rows, distinct, every, gather, put_rows, some, take_rows
from delaylog.storage.layout import (
    INDEX_ENTRY,
    STATE_ENDED_FIRST,
    STATE_ENTRY,
    STATE_NONE,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
    ref_to_id,
)
from delaylog.storage.messages.batch import TextColumn
from delaylog.storage.messages.rows import heads_of

# --------------------------------------------------------------------- ids that the broker made

_HEX: Final = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)
_ID_SIZE: Final = 17
_TILDE: Final = ord("~")


def ids_to_refs(
    block: bytes | memoryview, sizes: Int64Array
) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """The refs of a column of ids (0 where an id is not a ref), and which ids clients chose."""
    raw = np.frombuffer(block, np.uint8)
    refs = np.zeros(len(sizes), np.int64)
    starts = np.cumsum(sizes) - sizes
    chosen = sizes > 0
    first = np.zeros(len(sizes), np.uint8)
    first[chosen] = raw[starts[chosen]]
    ours = first == _TILDE
    chosen &= ~ours
    at = np.flatnonzero(ours & (sizes == _ID_SIZE))
    if len(at):
        digits = _HEX[raw[starts[at, None] + np.arange(1, _ID_SIZE)]]
        value = np.zeros(len(at), np.uint64)
        for k in range(_ID_SIZE - 1):
            value = (value << np.uint64(4)) | digits[:, k]
        good = (digits.max(axis=1) < 16) & (digits[:, 0] < 8)
        refs[at[good]] = value[good].astype(np.int64)
    return refs, chosen


_MOVED = int(MessageState.MOVED)
_WAITING = int(MessageState.WAITING)
_READY = int(MessageState.READY)


def find_origins(
    state: EngineState,
    origins: Int64Array,
    topic: Topic,
    now_ms: int | None = None,
    group: Group | None = None,
) -> FoundMessages:
    """The message of each origin of this topic, as a group sees it; the default group if None.

    With `now_ms`, one whose ttl is over by then is shown as ended; see `end_expired`.
    """
    group = group or topic.default
    if topic.groups.get(group.number) is not group:
        # The group does not exist: the settings may say that there is no default group.
        return _no_message(len(origins), group)
    known = np.flatnonzero(state.hours.known(origins))
    refs = origins[known]
    rows = state.hours.rows(refs)
    good = (
        state.hours.check_tags(refs, rows)
        & (rows["origin"] == refs)
        & (rows["topic"] == topic.number)
    )
    if group.born or topic.number in state.marks.special:
        good = good & group.has(rows)
    if not every(good):
        known, refs, rows = known[good], refs[good], take_rows(rows, good)
    entries = state.hours.get_states(refs, group.number)
    moved = np.flatnonzero(entries["state"] == _MOVED)
    now_refs = refs
    if len(moved):
        forward = entries["forward"][moved].astype(np.int64)
        there, new_rows = _there(state, forward)
        if not every(there):
            # The others have ended, and the hours of their newest rows were removed.
            kept = np.ones(len(known), np.bool_)
            kept[moved[~there]] = False
            known, refs = known[kept], refs[kept]
            rows, entries = take_rows(rows, kept), take_rows(entries, kept)
            moved, forward = np.flatnonzero(entries["state"] == _MOVED), forward[there]
            now_refs = refs
        if len(moved) == len(refs):
            now_refs, rows, entries = (
                forward,
                new_rows,
                state.hours.get_states(forward, group.number),
            )
        else:
            now_refs, rows = refs.copy(), copy_rows(rows)
            now_refs[moved] = forward
            put_rows(rows, moved, new_rows)
            put_rows(entries, moved, state.hours.get_states(forward, group.number))
    group.show_purged(rows["sent_position"], entries)
    if now_ms is not None:
        topic.show_expired(rows["expires_at"], entries, now_ms)
    states = shown_states(rows, entries, now_ms)
    there = np.ones(len(known), np.bool_)
    found = FoundMessages(there, refs.copy(), now_refs, rows, entries, states, group)
    return _in_slots(len(origins), known, found)


def _in_slots(n: int, at: Int64Array, found: FoundMessages) -> FoundMessages:
    """Spread messages over n slots, to the indexes `at`; the other slots are not known."""
    if len(at) == n:
        return found
    out = _no_message(n, found.group)
    out.known[at] = True
    out.origins[at], out.refs[at], out.states[at] = found.origins, found.refs, found.states
    put_rows(out.rows, at, found.rows)
    put_rows(out.entries, at, found.entries)
    return out


def _no_message(n: int, group: Group) -> FoundMessages:
    """Columns of n slots without messages."""
    return FoundMessages(
        np.zeros(n, np.bool_),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.zeros(n, INDEX_ENTRY),
        np.zeros(n, STATE_ENTRY),
        np.zeros(n, np.uint8),
        group,
    )


def _there(state: EngineState, refs: Int64Array) -> tuple[npt.NDArray[np.bool_], RowArray]:
    """Which refs still name their rows, and those rows.

    An hour that was removed may have been created again, with other rows.
    """
    there = np.asarray(state.hours.known(refs), np.bool_)
    named = refs[there]
    rows = state.hours.rows(named)
    good = np.asarray(state.hours.check_tags(named, rows), np.bool_)
    if every(good):
        return there, rows
    there[there] = good
    return there, take_rows(rows, good)


def shown_states(rows: RowArray, entries: StateArray, now_ms: int | None) -> npt.NDArray[np.uint8]:
    """The states that clients see: the stored one, or waiting / ready by due time."""
    stored = shown_kinds(entries)
    if now_ms is None:
        fresh: npt.NDArray[np.uint8] | int = _WAITING
    else:
        fresh = np.where(rows["deliver_at"] <= now_ms, _READY, _WAITING).astype(np.uint8)
    return np.where(stored == STATE_NONE, fresh, stored).astype(np.uint8)


def find_ids(
    state: EngineState,
    topic: Topic,
    ids: list[str],
    now_ms: int | None = None,
    group: Group | None = None,
) -> FoundMessages:
    """The message of each id; see `find_texts`."""
    raws = [text.encode("utf-8", "surrogatepass") for text in ids]
    sizes = np.fromiter(map(len, raws), np.int64, len(raws))
    return find_texts(state, topic, TextColumn(sizes, b"".join(raws)), len(raws), now_ms, group)


def find_texts(
    state: EngineState,
    topic: Topic,
    ids: TextColumn,
    n: int,
    now_ms: int | None = None,
    group: Group | None = None,
) -> FoundMessages:
    """The message of each id of a column. Ended messages are found while their rows are kept."""
    sizes = ids.sizes(n)
    origins, chosen = ids_to_refs(ids.block, sizes)
    at = np.flatnonzero(chosen)
    if len(at):
        hashes = state.id_hash.column(ids, n)
        origins[at] = state.ids.get_column(topic.number, hashes[at])
    found = find_origins(state, origins, topic, now_ms, group)
    at = at[found.known[at]]
    if len(at):
        wanted = gather(ids.block, (np.cumsum(sizes) - sizes)[at], sizes[at])
        other = ~same_ids(state, found.refs[at], take_rows(found.rows, at), wanted, sizes[at])
        if some(other):
            found = found.without(at[other])
    return found


def same_ids(
    state: EngineState, refs: Int64Array, rows: RowArray, wanted: bytes, sizes: Int64Array
) -> npt.NDArray[np.bool_]:
    """Which rows have the ids in `wanted`, which are concatenated and have these sizes."""
    same: npt.NDArray[np.bool_] = rows["id_size"] == sizes
    # A record begins with its id. Bodies are read only for the checksum of an id that differs.
    heads = heads_of(rows, "id_size")
    if every(same):
        if state.hours.records(refs, heads, checked=False) == wanted:
            return same
        stored = state.hours.records(refs, heads)
        asked = np.frombuffer(wanted, np.uint8)
    else:
        stored = state.hours.records(refs[same], heads[same])
        asked = np.frombuffer(wanted, np.uint8)[np.repeat(same, sizes)]
    owner = np.repeat(np.flatnonzero(same), sizes[same])
    same[owner[asked != np.frombuffer(stored, np.uint8)]] = False
    return same


def stored_ids(state: EngineState, refs: Int64Array, rows: RowArray) -> bytes:
    """The client-chosen ids of rows, concatenated; the rows have their sizes."""
    heads = heads_of(rows, "id_size")
    return state.hours.records(refs, heads)


def ids_of(state: EngineState, found: FoundMessages) -> list[str | None]:
    """The id of each message: the client's, else the broker's; None if it is not known."""
    at = np.flatnonzero(found.known)
    rows = take_rows(found.rows, at)
    out: list[str | None] = [None] * len(found)
    data = stored_ids(state, found.refs[at], rows)
    ends = np.cumsum(rows["id_size"].astype(np.int64)).tolist()
    for slot, start, end in zip(at.tolist(), [0, *ends], ends, strict=False):
        own = data[start:end].decode()
        out[slot] = own or ref_to_id(int(found.origins[slot]))
    return out


def put_newest_ids(state: EngineState, rows: RowArray) -> None:
    """Put the ids of rows into the id index, unless the entry there is to be preferred.

    For a rebuild, which reads rows by due time. Of several messages with one id, a living one is
    preferred to ended ones (a replay may have revived an older one), and then the newest.
    """
    named = take_rows(rows, rows["id_hash"] != 0)
    for number in distinct(named["topic"]).tolist():
        topic = state.by_number.get(number)
        mine = named[named["topic"] == number]
        there = state.ids.get_column(number, mine["id_hash"])
        taken = (there != 0) & (there != mine["origin"])
        taken[taken] = state.hours.known(there[taken])
        doubtful = np.flatnonzero(taken | _used_again(mine))
        living = np.zeros(len(mine), np.bool_)
        newest = np.ones(len(mine), np.bool_)
        if len(doubtful) and topic is not None:
            living[doubtful] = _live(state, topic, mine["origin"][doubtful].astype(np.int64))
        at = np.flatnonzero(taken)
        if len(at):
            before = state.hours.rows(there[at])["sent_position"]
            newest[at] = mine["sent_position"][at] >= before
            if topic is not None:
                lives = _live(state, topic, there[at])
                newest[at] = np.where(living[at] == lives, newest[at], living[at])
        order = np.lexsort((mine["sent_position"], living))
        order = order[newest[order]]
        state.ids.put_rows(mine[order], mine["origin"][order].astype(np.int64))


def _used_again(rows: RowArray) -> npt.NDArray[np.bool_]:
    """Which rows share their id with another message among them."""
    order = np.lexsort((rows["origin"], rows["id_hash"]))
    hashes, origins = rows["id_hash"][order], rows["origin"][order]
    again = (hashes[1:] == hashes[:-1]) & (origins[1:] != origins[:-1])
    return np.isin(rows["id_hash"], hashes[1:][again])


def _live(state: EngineState, topic: Topic, origins: Int64Array) -> npt.NDArray[np.bool_]:
    """Which messages live in some group."""
    out = np.zeros(len(origins), np.bool_)
    for group in topic.groups.values():
        found = find_origins(state, origins, topic, group=group)
        out |= found.known & (found.states < STATE_ENDED_FIRST)
    return out

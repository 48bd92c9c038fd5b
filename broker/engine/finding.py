"""Finding a message by id: from what a client holds to the row where it is now.

A server-made id is the origin's ref; a client-chosen one goes through the id index, whose hits
are hints and are checked against the row. From the origin the state column leads straight to the
newest row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.groups import Group
from delaylog.broker.engine.model import Found, Topic
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns import some
from delaylog.storage.layout import Cause, Int64Array, MessageState, RowArray, id_to_ref
from delaylog.storage.rows import hash_u64

_ENDED_FIRST = MessageState.ACKED


def find_origins(
    state: EngineState,
    origins: Int64Array,
    topic: Topic,
    now_ms: int | None = None,
    group: Group | None = None,
) -> list[Found | None]:
    """A message per origin ref of this topic as a group (absent: the default one) sees it."""
    group = group or topic.default
    number = group.number
    out: list[Found | None] = [None] * len(origins)
    known = np.flatnonzero(state.hours.known(origins))
    if len(known) == 0:
        return out
    refs = origins[known]
    rows = state.hours.rows(refs)
    good = (
        state.hours.check_tags(refs, rows)
        & (rows["origin"] == refs)
        & (rows["topic"] == topic.number)
    )
    known, refs, rows = known[good], refs[good], rows[good]
    if len(known) == 0:
        return out
    entries = state.hours.get_states(refs, number)
    moved = np.flatnonzero(entries["state"] == MessageState.MOVED)
    if len(moved):
        gone = moved[~_there(state, entries["forward"][moved].astype(np.int64))]
        if len(gone):
            # The message ended and went with its last hour; another row keeps this one.
            known, refs = np.delete(known, gone), np.delete(refs, gone)
            rows, entries = np.delete(rows, gone), np.delete(entries, gone)
            moved = np.flatnonzero(entries["state"] == MessageState.MOVED)
    if topic.number in state.special:
        there = group.has(rows)
        known, refs, rows, entries = known[there], refs[there], rows[there], entries[there]
        moved = np.flatnonzero(entries["state"] == MessageState.MOVED)
    now_refs = refs.copy()
    if len(moved):
        forward = entries["forward"][moved].astype(np.int64)
        rows, entries = rows.copy(), entries.copy()
        rows[moved] = state.hours.rows(forward)
        entries[moved] = state.hours.get_states(forward, number)
        now_refs[moved] = forward
    if group.floor:
        purged = group.purged(rows, entries)
        if some(purged):
            entries = entries.copy()
            entries["state"][purged] = MessageState.DELETED
            entries["cause"][purged] = Cause.PURGE
            entries["time"][purged] = group.purged_ms
    for at, (slot, origin) in enumerate(zip(known.tolist(), refs.tolist(), strict=True)):
        entry = entries[at]
        out[slot] = Found(
            origin, int(now_refs[at]), rows[at], entry, shown_state(rows[at], entry, now_ms)
        )
    return out


def _there(state: EngineState, refs: Int64Array) -> npt.NDArray[np.bool_]:
    """Which refs still name their row: an hour that was removed may have come to be again."""
    there = np.asarray(state.hours.known(refs), np.bool_)
    if some(there):
        named = refs[there]
        there[there] = state.hours.check_tags(named, state.hours.rows(named))
    return there


def shown_state(row: RowArray, entry: RowArray, now_ms: int | None) -> MessageState:
    """The state a client sees: stored, or waiting / ready by due time."""
    kept = int(entry["state"])
    if kept != MessageState.NONE:
        return MessageState(kept)
    if now_ms is not None and int(row["deliver_at"]) <= now_ms:
        return MessageState.READY
    return MessageState.WAITING


def find_ids(
    state: EngineState,
    topic: Topic,
    ids: list[str],
    now_ms: int | None = None,
    group: Group | None = None,
) -> list[Found | None]:
    """A message per id text, or None; ended messages are found while their rows are kept."""
    origins = np.zeros(len(ids), np.int64)
    chosen: list[int] = []
    for at, text in enumerate(ids):
        ref = id_to_ref(text)
        if ref is not None:
            origins[at] = ref
        elif text and not text.startswith("~"):
            chosen.append(at)
    if chosen:
        raws = [ids[at].encode("utf-8", "surrogatepass") for at in chosen]
        hits = state.ids.get_many(topic.number, [hash_u64(raw) for raw in raws])
        for at, hit in zip(chosen, hits, strict=True):
            origins[at] = hit or 0
    out = find_origins(state, origins, topic, now_ms, group)
    for at in chosen:
        found = out[at]
        if found is not None and row_id(state, found) != ids[at].encode("utf-8", "surrogatepass"):
            out[at] = None
    return out


def row_id(state: EngineState, found: Found) -> bytes:
    """The client-chosen id stored with a row."""
    size = int(found.row["id_size"])
    if size == 0:
        return b""
    refs = np.array([found.ref], np.int64)
    return state.hours.records(refs, np.array([found.row]))[:size]


def find_living(
    state: EngineState, topic: Topic, hashes: list[int], values: list[bytes]
) -> list[Found | None]:
    """The living message of each client-chosen id, or None."""
    out: list[Found | None] = [None] * len(hashes)
    hits = state.ids.get_many(topic.number, hashes)
    slots = [at for at, hit in enumerate(hits) if hit is not None]
    if not slots:
        return out
    origins = np.array([hits[at] for at in slots], np.int64)
    for at, found in zip(slots, find_origins(state, origins, topic), strict=True):
        if found is None or found.state >= _ENDED_FIRST:
            continue
        if row_id(state, found) == values[at]:
            out[at] = found
    return out


def put_newest_ids(state: EngineState, rows: RowArray) -> None:
    """Put the ids of rows into the id index, each unless a message sent later has it there.

    For a rebuild, which meets rows by due time: an id that was used again may have its newest
    message in an earlier hour.
    """
    named = rows[rows["id_hash"] != 0]
    named = named[np.argsort(named["sent_position"], kind="stable")]
    for topic in np.unique(named["topic"]).tolist():
        mine = named[named["topic"] == topic]
        hits = state.ids.get_many(topic, mine["id_hash"].tolist())
        there = np.array([hit or 0 for hit in hits], np.int64)
        newest = np.ones(len(mine), np.bool_)
        taken = np.flatnonzero((there != 0) & state.hours.known(there))
        if len(taken):
            before = state.hours.rows(there[taken])["sent_position"]
            newest[taken] = mine["sent_position"][taken] >= before
        state.ids.put_rows(mine[newest], mine["origin"][newest].astype(np.int64))

"""The content of a checkpoint: all small state of an engine, packed and restored.

Rows and message states are in files of the hours. Their counts, and everything else, are here: the
tables, the keyspace, the id index. A restored engine is as of the checkpoint's position; the log
behind it is replayed afterwards. The id index is rebuilt from the rows if it was lost or is older
than the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace, base_of, load_keyspace
from delaylog.broker.engine.lookup.find_messages import put_newest_ids
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.schedules.table import FOLDER as SCHEDULES
from delaylog.broker.engine.schedules.table import named_files
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, Group, GroupCounts
from delaylog.broker.engine.topics.packed_topics import GROUP, TOPIC
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.contract.named_fields import NamedFields
from delaylog.storage.checkpoint import Checkpoint, saved_hours
from delaylog.storage.columns import CountColumns
from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.layout import HOUR_MS
from delaylog.storage.log.frames import Tick
from delaylog.storage.work import Work

# ----------------------------------------------------------------- members, packed and restored

_NUMBERS: Final = NamedFields(
    hour_floor="hour_floor",
    hour_floor_top="hour_floor_top",
    archive_released="archive_released",
    next_topic="next_topic",
    lease_number="lease_number",
)


def snapshot(state: EngineState, now_ms: int) -> dict[str, Any]:
    """All small state at the present end of the log.

    It is written later, so it shares no object that still changes. Topics, leases and producers are
    packed by `pack`, in slices; `store_rows` of the schedules writes their rows.
    """
    packing = state.packed_topics.begin()
    return {
        "sealed": True,
        "told_ms": now_ms,
        "epoch": state.epoch_counter,
        "epochs": list(state.epochs),
        "members": state.members,
        "level": state.level,
        "held": state.holding.saved(),
        "id_key": state.id_key,
        **_NUMBERS.pack(state),
        "hour_floor_top": max(state.hour_floor_top, state.hour_floor),
        "tick": [state.tick.second, state.tick.local_index, state.tick.position],
        "topics": packing.topics,
        "settings": packing.settings,
        "series": state.series.snapshot(),
        "replaced": state.series.counts.replaced,
        "hours": saved_hours(state.hours.counts.near),
        "far": {"hours": state.hours.counts.saved()},
        "leases": state.leases.snapshot(),
        "claims": state.claims.snapshot(),
        "producers": state.producers.snapshot(),
        "jobs": state.jobs.snapshot(),
        "transactions": state.transactions.snapshot(state.position),
        "keyspace": state.keyspace_base.saved(state.position),
        "access": state.access.snapshot(),
        "schedules": state.schedules.snapshot(state.position),
        "targets": state.targets.snapshot(),
        **state.failures.saved(),
        "timeline": state.timeline.saved(),
    }


def pack(state: EngineState) -> Work:
    """Pack topics, leases and producers into the last snapshot."""
    yield from state.packed_topics.work()
    yield from state.leases.entries.work()
    yield from state.producers.entries.work()


def end_packing(state: EngineState) -> None:
    """Stop packing: the last snapshot is complete, or was abandoned."""
    state.packed_topics.give_up()
    state.leases.entries.give_up()
    state.producers.entries.give_up()
    state.schedules.end_snapshot()


FAR: Final = "hours/far"


def files_of(checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    """The files that a checkpoint names, by folder, and how many of their bytes it needs.

    These bytes never change, and exist as long as the checkpoint does.
    """
    members = checkpoint.members
    base = base_of(checkpoint)
    schedules = members.get("schedules")
    return {
        KEYSPACE: {base.file: base.size} if base.file else {},
        FAR: checkpoint.runs.sizes,
        SCHEDULES: {} if schedules is None else named_files(schedules),
    }


def log_needed(saved: dict[str, Any]) -> int:
    """Position from which a start from a checkpoint with these members needs the log.

    It may lie before the checkpoint: the keyspace, staged parts and definitions of schedules are
    read from older frames.
    """
    owners = (saved["transactions"], saved["schedules"])
    starts = (int(owner["log_from"]) for owner in owners)
    return min(int(saved["keyspace"]["position"]), *starts)


def _restore_group(state: EngineState, topic: Topic, saved: dict[str, Any]) -> None:
    number = saved["number"]
    if number == DEFAULT_GROUP:
        group = topic.default
    else:
        group = state.new_group(topic.number, number, saved["name"])
    topic.groups[number] = group
    fill_group(group, saved)
    state.series.enter_group(topic, group, other=saved["other"])
    key = (topic.number, number)
    if group.ephemeral:
        state.marks.ephemeral.add(key)


def fill_group(group: Group, saved: dict[str, Any]) -> None:
    """Fill a new group from a checkpoint."""
    GROUP.fill(group, saved)
    group.counts = GroupCounts(*saved["counts"])
    group.counts.replaced = saved["replaced"]
    if any(saved["gate"].values()):
        group.gate.restore(saved["gate"])
    group.hours = CountColumns.unpack(saved["hours"])
    group.guests = CountColumns.unpack(saved["guests"])


def restore(state: EngineState, checkpoint: Checkpoint) -> None:
    """Fill an empty state from a checkpoint; hours are truncated to its counts."""
    saved, position = checkpoint.members, checkpoint.position
    state.epochs = checkpoint.epochs
    state.members = saved["members"]
    state.epoch = state.epochs[-1][0] if state.epochs else 0
    state.level = saved["level"]
    state.holding.restore(saved["held"])
    state.use_id_key(checkpoint.id_key)
    _NUMBERS.fill(state, saved)
    state.tick = Tick(*saved["tick"])
    state.series.restore(saved["series"], saved["replaced"])
    known_settings = [TopicSettings.from_dict(each) for each in saved["settings"]]
    for item in saved["topics"]:
        settings = known_settings[item["settings"]]
        topic = state.new_topic(item["number"], item["ns"], item["name"], settings, item["made"])
        TOPIC.fill(topic, item)
        topic.erased, topic.erased_here = item["erased"]
        if topic.erasing:
            state.marks.erasing.add(topic.number)
        state.series.enter(topic, other=item["other"])
        for saved_group in item["groups"]:
            _restore_group(state, topic, saved_group)
        state.marks.mark_special(topic)
        topic.follow_settings()
    state.hours.recover(checkpoint.hours, position, checkpoint.epoch, saved["far"])
    state.leases.restore(saved["leases"])
    for topic_number, group_number, keys in state.leases.leased_keys():
        group = state.group(topic_number, group_number)
        if group is not None:
            group.gate.lock(keys)
    state.claims.restore(saved["claims"])
    state.producers.restore(saved["producers"])
    state.jobs.restore(saved["jobs"])
    state.transactions.restore(saved["transactions"])
    state.access.restore(saved["access"])
    state.schedules.restore(saved["schedules"])
    state.targets.restore(saved["targets"])
    state.failures.restore(saved)
    state.timeline.restore(saved["timeline"])


# -------------------------------------------------------------------- a start from a checkpoint


def restore_checkpoint(
    state: EngineState,
    checkpoint: Checkpoint | None,
    loaded: LoadedKeyspace | None,
    *,
    progress: Callable[[str], None],
    working: Callable[[str, int, int], None],
) -> tuple[int, int]:
    """Restore a checkpoint, if there is one; returns its position and the time it was taken.

    `loaded` = a keyspace that was loaded for some checkpoint, perhaps this one.
    """
    start = told_ms = 0
    if checkpoint is not None:
        # The tick file has a time too, but it is never synced.
        start, told_ms = checkpoint.position, checkpoint.told_ms
        restore(state, checkpoint)
        _check_staged(state, start)
        _restore_keyspace(state, checkpoint, loaded, working)
    else:
        state.hours.recover({}, 0)
    # Rows of the replay must go to the same hours, or the far tier, as before.
    state.hours.border.look_ahead(state.wheel.now_ms // HOUR_MS)
    if state.ids.set_aside:
        progress(f"the id index was removed: {state.ids.set_aside}")
    if state.ids.position < start:
        progress("rebuilding the id index")
        rebuild_ids(state, working)
    return start, told_ms


def _check_staged(state: EngineState, start: int) -> None:
    """Check that the log has staged parts and schedules, which may be before the checkpoint."""
    log, needed = state.log, state.transactions.log_from(start)
    needed = min(needed, state.schedules.log_from(start))
    if needed < log.first_position:
        raise CorruptionError(
            "the log begins behind staged parts or schedules that are still needed",
            path=f"{state.folder}/log",
            position=needed,
        )


def _restore_keyspace(
    state: EngineState,
    checkpoint: Checkpoint,
    loaded: LoadedKeyspace | None,
    working: Callable[[str, int, int], None],
) -> None:
    """Take `loaded` if it is the keyspace of this checkpoint, or load that now."""
    mine = (checkpoint.position, base_of(checkpoint))
    if loaded is None or (loaded.position, loaded.base) != mine:
        loaded = load_keyspace(
            state.fs,
            state.folder,
            checkpoint,
            state.keyspace,
            working=lambda done, total: working("replaying the keyspace", done, total),
        )
    state.keyspace, state.keyspace_base = loaded.keyspace, loaded.base
    state.keyspace_pieces = loaded.pieces
    state.keyspace_pieces.begin_epoch(state.epoch)


RECENT_IDS_MAX: Final = 250_000
"""Ids in memory at which they are written."""


def rebuild_ids(state: EngineState, working: Callable[[str, int, int], None]) -> None:
    """Put the ids of all rows into the index, in bounded memory."""
    ids, hours = state.ids, state.hours
    ids.clear()
    done, total = 0, hours.counts.row_total
    for hour in hours.counts:
        if hours.counts[hour].rows:
            for rows in hours.view(hour).scan_rows():
                put_newest_ids(state, rows)
                done += len(rows)
                working("rebuilding the id index", done, total)
                if ids.recent_count >= RECENT_IDS_MAX:
                    ids.begin_flush()
                    # Position 0, so that an interrupted rebuild begins again. On a full disk the
                    # ids stay in memory, where look-ups find them too.
                    with suppress(DiskFullError):
                        ids.write_flush(0)
                        ids.end_flush()

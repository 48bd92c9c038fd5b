"""What a checkpoint says of an engine: all small state, packed and restored.

Rows and states are in files of their own; here is what counts them, and everything else.
"""

from __future__ import annotations

from typing import Any, Final

from delaylog.broker.engine.deliver.waking import follow_settings
from delaylog.broker.engine.keyspace.keyspace_files import base_of
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import DEFAULT_GROUP, Group, GroupCounts
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.engine.topics.topic_packing import GROUP, TOPIC
from delaylog.storage.checkpoint import (
    HOUR_FIELDS,
)
from delaylog.storage.columns.count_columns import CountColumns
from delaylog.storage.hours.hour_counts import HourCounts
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.levels import FIRST_LEVEL
from delaylog.storage.messages.named_fields import NamedFields
from delaylog.storage.work import Work

_NUMBERS: Final = NamedFields(
    hour_floor="hour_floor",
    hour_floor_top="hour_floor_top",
    archive_released="archive_released",
    next_topic="next_topic",
    lease_number="lease_number",
)


def snapshot(state: EngineState, now_ms: int) -> dict[str, Any]:
    """All small state at the log's present end. It is written later, so nothing in it may be what
    the state goes on with. Topics, leases and producers are packed by `pack`, in slices.
    """
    packing = state.packed_topics.begin()
    return {
        "sealed": True,
        "told_ms": now_ms,
        "epoch": state.epoch_counter,
        "epochs": list(state.epochs),
        "members": state.members,
        "level": state.level,
        "id_key": state.id_key,
        **_NUMBERS.pack(state),
        "hour_floor_top": max(state.hour_floor_top, state.hour_floor),
        "tick": [state.tick.second, state.tick.local_index, state.tick.position],
        "topics": packing.topics,
        "settings": packing.settings,
        "series": state.series.snapshot(),
        "hours": {
            hour: [getattr(counts, name) for name in HOUR_FIELDS]
            for hour, counts in state.hours.counts.near.items()
        },
        "far": {"hours": state.hours.counts.saved()},
        "leases": state.leases.snapshot(),
        "claims": state.claims.snapshot(),
        "producers": state.producers.snapshot(),
        "jobs": state.jobs.snapshot(),
        "transactions": state.transactions.snapshot(state.position),
        "keyspace": state.keyspace_base.saved(state.position),
    }


def pack(state: EngineState) -> Work:
    """Fill the last snapshot with what is packed in slices."""
    yield from state.packed_topics.work()
    yield from state.leases.chain.work()
    yield from state.producers.chain.work()


def end_packing(state: EngineState) -> None:
    """The last snapshot is full, or nobody needs it."""
    state.packed_topics.give_up()
    state.leases.chain.give_up()
    state.producers.chain.give_up()


def log_needed(saved: dict[str, Any]) -> int:
    """From where on a start from a checkpoint needs the log.

    Frames in front of it hold what the keyspace comes back from, and what is staged.
    """
    staged: int = saved["transactions"]["log_from"]
    return min(base_of(saved).position, staged)


def saved_epochs(saved: dict[str, Any]) -> list[tuple[int, int]]:
    """The leaderships that a checkpoint knows of.

    None where it was taken before the first: a member that was stopped at once.
    """
    return [(epoch, start) for epoch, start in saved["epochs"]]


def _restore_group(state: EngineState, topic: Topic, saved: dict[str, Any]) -> None:
    number = saved["number"]
    if number == DEFAULT_GROUP:
        group = topic.default
    else:
        group = state.new_group(topic.number, number, saved["name"])
    topic.groups[number] = group
    fill_group(group, saved)
    state.series.enter_group(topic, group, other=saved.get("other", False))
    place = (topic.number, number)
    if group.ephemeral:
        state.ephemeral.add(place)
    if group.made_gate is not None and group.gate.remembers_origins:
        state.holders.add(place)


def fill_group(group: Group, saved: dict[str, Any]) -> None:
    """Give a new group what a checkpoint says about it."""
    GROUP.fill(group, saved)
    group.counts = GroupCounts(*saved["counts"])
    if any(saved["gate"].values()):
        group.gate.restore(saved["gate"])
    group.hours = CountColumns.unpack(saved["hours"])
    group.guests = CountColumns.unpack(saved["guests"])


def restore(state: EngineState, saved: dict[str, Any], position: int) -> None:
    """Fill an empty state from a checkpoint at `position`; the hours are cut to its counts."""
    state.epochs = saved_epochs(saved)
    state.members = saved.get("members", b"")
    state.epoch = state.epochs[-1][0] if state.epochs else 0
    state.level = saved.get("level", FIRST_LEVEL)
    state.use_id_key(saved.get("id_key", b""))
    _NUMBERS.fill(state, saved)
    state.tick = Tick(*saved["tick"])
    if "series" in saved:
        state.series.restore(saved["series"])
    known_settings = [TopicSettings.from_dict(each) for each in saved.get("settings", ())]
    for item in saved["topics"]:
        settings = item["settings"]
        # An older checkpoint says them with each topic.
        old = isinstance(settings, dict)
        settings = TopicSettings.from_dict(settings) if old else known_settings[settings]
        topic = state.new_topic(item["number"], item["ns"], item["name"], settings, item["made"])
        TOPIC.fill(topic, item)
        topic.erased, topic.erased_here = item.get("erased", (0, 0))
        if topic.erasing:
            state.erasing.add(topic.number)
        state.series.enter(topic, other=item.get("other", False))
        for saved_group in item["groups"]:
            _restore_group(state, topic, saved_group)
        state.mark_special(topic)
        follow_settings(topic)
    counts = {hour: HourCounts(*values) for hour, values in saved["hours"].items()}
    state.hours.recover(counts, position, saved["epoch"], saved.get("far"))
    state.leases.restore(saved["leases"])
    for topic_number, group_number, keys in state.leases.held_keys():
        held_by = state.group(topic_number, group_number)
        if held_by is not None:
            held_by.gate.hold(keys)
    state.claims.restore(saved["claims"])
    state.producers.restore(saved["producers"])
    state.jobs.restore(saved["jobs"])
    state.transactions.restore(saved["transactions"])

"""The table of push targets: frames and checkpoints give back what commands have set."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.errors import QuotaRefusal, UnknownError
from delaylog.broker.engine.push import commands
from delaylog.broker.engine.push.commands import drop_target, note_health, put_target, the_target
from delaylog.broker.engine.push.targets import WELL, Health, Target, TargetTable
from delaylog.broker.engine.topics.commands import drop_group, drop_topic, put_group
from delaylog.broker.engine.topics.idle import EPHEMERAL_IDLE_MS, TOPIC_IDLE_MS, retire_unused
from delaylog.storage.files.os_file_system import OsFileSystem

NOW = 1_790_000_000_000
TARGET = Target("https://example.com/", ("whsec_a", "whsec_b"), "structured", 5, 6, 7.5)
OPEN = Health("", NOW + 5, 1, 0, NOW, "answer 500")


def start(folder: Path) -> Engine:
    return Engine(OsFileSystem(), str(folder), Setup(Random(1)), now_ms=NOW)


def again(engine: Engine, folder: Path, *, checkpoint: bool) -> Engine:
    """The engine after a restart, from its log or from a checkpoint."""
    if checkpoint:
        engine.run_inline(engine.upkeep.checkpoint(lambda: NOW))
    engine.state.log.write_pending()
    engine.state.log.sync()
    engine.close()
    return start(folder)


def shown(table: TargetTable) -> Any:
    return table.targets, table.healths


@pytest.mark.parametrize("checkpoint", [False, True])
def test_targets_survive_a_restart(tmp_path: Path, checkpoint: bool) -> None:
    engine = start(tmp_path)
    state = engine.state
    topic = engine.make_topic("t", NOW)
    groups = [put_group(state, topic, name, NOW) for name in ("a", "b", "c")]
    for group in (topic.default, *groups):
        put_target(state, topic, group, TARGET, NOW)
    note_health(state, (topic.number, groups[0].number), OPEN, NOW)
    drop_target(state, topic, groups[1], NOW)
    drop_group(state, topic, groups[2], NOW)
    before = shown(state.targets)
    assert len(before[0]) == 2
    engine = again(engine, tmp_path, checkpoint=checkpoint)
    assert shown(engine.state.targets) == before
    topic = engine.state.topics["default", "t"]
    a, b = topic.group("a"), topic.group("b")
    assert a is not None
    assert b is not None
    assert the_target(engine.state, topic, a) == (TARGET, OPEN)
    assert the_target(engine.state, topic, topic.default) == (TARGET, WELL)
    with pytest.raises(UnknownError, match="has no target"):
        the_target(engine.state, topic, b)
    drop_topic(engine.state, topic, NOW)
    assert shown(engine.state.targets) == ({}, {})
    engine = again(engine, tmp_path, checkpoint=checkpoint)
    assert shown(engine.state.targets) == ({}, {})
    engine.close()


def test_what_pushes_learn_of_a_target_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    engine = start(tmp_path)
    topic = engine.make_topic("t", NOW)
    put_target(engine.state, topic, topic.default, TARGET, NOW)
    drop_target(engine.state, topic, topic.default, NOW)
    end = engine.state.position
    note_health(engine.state, (topic.number, 1), OPEN, NOW)
    assert engine.state.position == end
    assert shown(engine.state.targets) == ({}, {})
    engine.close()


def test_a_topic_and_a_group_with_a_target_are_not_retired(tmp_path: Path) -> None:
    engine = start(tmp_path)
    state = engine.state
    plain, pushed = engine.make_topic("plain", NOW), engine.make_topic("pushed", NOW)
    put_target(state, pushed, pushed.default, TARGET, NOW)
    grouped = engine.make_topic("grouped", NOW)
    short = put_group(state, grouped, "short", NOW, ephemeral=True)
    gone = put_group(state, grouped, "gone", NOW, ephemeral=True)
    put_target(state, grouped, short, TARGET, NOW)
    later = NOW + TOPIC_IDLE_MS + EPHEMERAL_IDLE_MS
    for now_ms in (NOW, later, later + 1):
        state.marks.retire_queue.clear()
        retire_unused(state, now_ms)
    assert plain.number not in state.by_number
    assert pushed.number in state.by_number
    assert [group.name for group in grouped.groups.values()] == ["default", "short"]
    assert gone.number not in grouped.groups
    engine.close()


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = start(tmp_path)
    topic = engine.make_topic("t", NOW)
    monkeypatch.setattr(commands, "TARGETS_MAX", 1)
    put_target(engine.state, topic, topic.default, TARGET, NOW)
    put_target(engine.state, topic, topic.default, TARGET, NOW)
    other = engine.make_topic("u", NOW)
    with pytest.raises(QuotaRefusal, match="there are 1 push targets"):
        put_target(engine.state, other, other.default, TARGET, NOW)
    engine.close()


def test_no_secret_is_in_the_representation_of_a_target() -> None:
    assert "whsec" not in repr(TARGET)

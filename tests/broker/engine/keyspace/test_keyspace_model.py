"""The keyspace in the engine against a model that knows what each position of the log holds.

Method: sets, deletions and expiries by the commands themselves beside messages; checkpoints,
snapshots, restarts and kills in between, and a crash at every operation of the disk. The log's end
says which of what the model knows has happened. Snapshots are made in process.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.keyspace.keyspace_files import (
    FOLDER,
)
from tests.broker.engine.keyspace_work import SMALL, Runner, execute, put, small_log, snapshot
from tests.effort import tries
from tests.storage.fake_disk import DiskCrashed, FakeDisk, Survival

__all__ = ["small_log"]

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.binary(max_size=200)),
        st.tuples(st.just("end"), KEYS, st.integers(1, 5_000)),
        st.tuples(st.just("send"), st.integers(1, 8)),
        st.tuples(st.just("advance"), st.integers(1, 4_000)),
        st.tuples(st.sampled_from(["sync", "checkpoint", "snapshot", "begin", "finish"])),
        st.tuples(st.sampled_from(["restart", "kill", "kill"])),
    ),
    max_size=60,
)


@settings(
    max_examples=tries(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_against_a_model(
    host_class: Any, tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Whatever is killed when: the keys are those of the log's surviving end."""
    folder = tmp_path_factory.mktemp("model")
    runner = Runner()
    host = host_class(folder, limits=SMALL, make_snapshot=runner)
    seen: dict[int, Any] = {host.engine.state.log.end_position: ({}, {})}
    work: Any = None

    def note() -> None:
        database = host.engine.state.keyspace.databases[0]
        seen[host.engine.state.log.end_position] = (
            dict(database.values),
            dict(database.expires),
        )

    try:
        for what, *how in steps:
            engine = host.engine
            if what == "set":
                # As the command does, an expiry ends by it.
                put(engine, host.now_ms, how[0], how[1])
            elif what == "end":
                at_ms = b"%d" % (host.now_ms + how[1])
                execute(engine, host.now_ms, [b"PEXPIREAT", how[0], at_ms])
            elif what == "send":
                host.send(how[0])
            elif what == "advance":
                host.advance(how[0])
            elif what == "sync":
                host.sync()
            elif what == "checkpoint":
                host.checkpoint()
            elif what == "snapshot" and work is None:
                runner.begin = runner.here
                snapshot(engine)
            elif what == "begin" and work is None:
                host.sync()
                runner.begin = runner.slowly
                work = engine.upkeep.snapshots.work(lambda: 0)
                step = next(work, None)
                if step is None:
                    work = None
                else:
                    step()
                    assert isinstance(next(work), float)
            elif what == "finish" and work is not None:
                runner.slow[-1].finished = True
                assert next(work, None) is None
                work = None
            elif what in ("restart", "kill"):
                if work is not None:
                    work.close()
                    work = None
                note()
                (host.restart if what == "restart" else host.crash)()
                # The end that was found, in front of this life's EPOCH_BEGIN and of what was due.
                database = host.engine.state.keyspace.databases[0]
                found = host.engine.state.log.found_end
                values, expires = seen[max(at for at in seen if at <= found)]
                over = {key for key, at_ms in expires.items() if at_ms <= host.now_ms}
                assert database.values == {k: v for k, v in values.items() if k not in over}
                assert database.expires == {k: v for k, v in expires.items() if k not in over}
                seen = {}
            note()
            kept = host.engine.upkeep.kept
            first = host.engine.state.log.first_position
            assert all(first <= one.log_from for one in kept), "what a start needs is there"
    finally:
        if work is not None:
            work.close()
        host.close()


# --------------------------------------------------------------------------- crashes


class Script:
    """One small life: effects, messages, checkpoints and snapshots in a fixed order."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        self.seen: dict[int, Any] = {0: {}}
        self.durable = 0

    def open(self) -> Engine:
        return Engine(
            self.disk,
            "data",
            Setup(random=Random(3), limits=SMALL),
            now_ms=1_700_000_000_000,
        )

    def run(self) -> None:
        engine = self.open()
        for turn in range(4):
            for number in range(3):
                key = b"k%d" % (number + turn)
                put(engine, 1_700_000_000_000, key, b"%d.%d" % (turn, number) * 30)
                self.note(engine)
            engine.state.log.write_pending()
            self.durable = engine.state.log.sync()
            engine.commit(self.durable, 1_700_000_000_000)
            if turn % 2:
                engine.run_inline(engine.upkeep.snapshots.work(lambda: 0))
            engine.run_inline(engine.upkeep.checkpoint(lambda: 1_700_000_000_000))
        engine.close()

    def note(self, engine: Engine) -> None:
        values = engine.state.keyspace.databases[0].values
        self.seen[engine.state.log.end_position] = dict(values)


@pytest.mark.parametrize("survival", ["nothing", "everything", "prefix", "sectors"])
def test_crash_at_every_operation(survival: Survival) -> None:
    """What was durable is there, once, whatever operation of the disk was the last."""
    whole = FakeDisk()
    Script(whole).run()
    for at in range(1, whole.count, 1 if survival == "sectors" else 3):
        disk = FakeDisk()
        script = Script(disk)
        disk.crash_at = at
        with pytest.raises(DiskCrashed):
            script.run()
        for again in range(2):
            disk = disk.restart(survival, at + again)
            script.disk = disk
            engine = script.open()
            end = engine.state.log.found_end
            assert end >= script.durable
            expected = script.seen[max(position for position in script.seen if position <= end)]
            assert engine.state.keyspace.databases[0].values == expected
            engine.run_inline(engine.upkeep.snapshots.work(lambda: 0))
            engine.run_inline(engine.upkeep.checkpoint(lambda: 1_700_000_000_000))
            asides = [name for name in _names(disk) if name.endswith(".tmp")]
            assert not asides, "what a try has left is gone"
            script.seen = {engine.state.log.end_position: expected}
            script.durable = engine.state.log.durable_position
            engine.close()


def _names(disk: FakeDisk) -> list[str]:
    return disk.listdir(f"data/{FOLDER}") if disk.exists(f"data/{FOLDER}") else []

"""The model of the whole engine, with compaction after any step: only what may be unknown is.

`EngineMachine` does and checks everything else. Hours are compacted however little there is to
remove, and keep times are over at once, so any step may find rows gone.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from delaylog.broker.engine.upkeep import compaction
from delaylog.broker.verify import Report, verify_folder
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.hours import compaction as rewriting
from delaylog.storage.layout import MessageState as S
from tests.broker.engine import test_machine
from tests.effort import tries

FORGOTTEN = "forgotten"
ENDED = (S.ACKED, S.EXPIRED, S.DELETED)


class CompactingMachine(test_machine.EngineMachine):
    """Forgets what the broker may forget."""

    host_class: Any = None

    def __init__(self) -> None:
        super().__init__()
        keep = {"ended_keep_ms": 0, "dead_keep_ms": 7 * 24 * 3_600_000}
        settings = self.host.topic.settings.as_dict() | keep
        self.host.configure(**settings)
        # Who has that name is named by it no more.
        self.by_name[FORGOTTEN] = test_machine.Model(FORGOTTEN, b"", 0)

    @invariant()
    def agree(self) -> None:
        """As far as messages are known."""
        self.forget()
        super().agree()

    @rule(times=st.integers(1, 3))
    def compact(self, times: int) -> None:
        """Marks, checkpoints and removals, each as often as it comes."""
        for _ in range(times):
            self.host.checkpoint()
            compactor = self.host.engine.compactor
            compactor._look_ms = 0
            compactor._again_ms.clear()
            self.host.engine.run_inline(compactor.work(lambda: self.host.now_ms))

    def teardown(self) -> None:
        self.host.checkpoint()
        report = Report()
        for _ in verify_folder(OsFileSystem(), str(self.host.folder), report):
            pass
        super().teardown()
        assert report.damage == []

    def forget(self) -> None:
        """Names that are unknown by now lead nowhere."""
        self.pass_time()
        self.note_ended()
        names = {m.name for m in self.messages} - {FORGOTTEN}
        for name, found in zip(names, self.host.find(list(names)), strict=True):
            mine = [m for m in self.messages if m.name == name]
            last = self.by_name.get(name, mine[-1])
            if found is None:
                assert last.state in ENDED or last.may_be_forgotten(self.host.now_ms), last
                for m in mine:
                    m.name = FORGOTTEN
                self.by_name.pop(name, None)


def test_compaction_at_any_time(host_class: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "ROWS_MIN", 1)
    monkeypatch.setattr(rewriting, "REWRITE_ROWS", 4)

    class Machine(CompactingMachine):
        pass

    Machine.host_class = host_class
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=tries(40),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )

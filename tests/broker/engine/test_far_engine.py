"""The engine's largest tests once more, with every hour but the present one in the far tier.

Purpose: what is true of hours in folders is true of far hours: histories against the model, crashes
at file operations, followers with the same hours, backups of one moment.
Method: the border of the far tier is an hour ahead instead of a day, and two sets are merged
instead of eight; the tests themselves are those of the files they come from.
"""

from __future__ import annotations

import pytest

from delaylog.storage import hour_store, run_stack
from tests.broker.engine import test_engine_crash
from tests.broker.engine.test_backup import test_a_backup_is_one_moment, torn
from tests.broker.engine.test_engine_crash import test_crash_at_file_operations
from tests.broker.engine.test_standby import member, test_the_same_hours
from tests.broker.engine.test_whole_queue import test_the_whole_queue_agrees_with_a_model

__all__ = [
    "member",
    "test_a_backup_is_one_moment",
    "test_crash_at_file_operations",
    "test_the_same_hours",
    "test_the_whole_queue_agrees_with_a_model",
    "torn",
]


@pytest.fixture(autouse=True)
def one_near_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hour_store, "NEAR_HOURS", 1)
    monkeypatch.setattr(run_stack, "FAN_IN", 2)
    monkeypatch.setattr(test_engine_crash, "SAMPLE", 15)

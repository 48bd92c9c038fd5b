"""Warnings that others can cause: the first of a kind, and then one in a while with a count."""

from __future__ import annotations

import logging

import pytest

from delaylog.broker.host.watch.quiet_log import REPEAT_S, QuietLog


def test_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    log = QuietLog(logging.getLogger("quiet"), lambda: now)
    for _ in range(5):
        log.tell("a", "first %d", 1)
    log.tell("b", "second")
    assert [record.getMessage() for record in caplog.records] == ["first 1", "second"]
    now += REPEAT_S
    log.tell("a", "again")
    log.tell("b", "again")
    assert [getattr(record, "repeated", 0) for record in caplog.records] == [0, 0, 4, 0]

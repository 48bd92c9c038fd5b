"""A survivor without a majority says so once, and names whom it lacks."""

from __future__ import annotations

import logging

import pytest

from delaylog.broker.cluster.watch.member_watch import GRACE_MS, MajorityWatch
from delaylog.replication.configuration import Configuration

THREE = Configuration((1, 2, 3))


def test_it_is_said_once_and_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watch = MajorityWatch()
    watch.look(0, THREE, {1, 2}, ["gamma"])
    watch.look(500, THREE, {1}, ["beta", "gamma"])
    watch.look(500 + GRACE_MS - 1, THREE, {1}, ["beta", "gamma"])
    assert not caplog.records
    for late in (0, 500, 1_000):
        watch.look(500 + GRACE_MS + late, THREE, {1}, ["beta", "gamma"])
    (said,) = caplog.records
    assert said.levelno == logging.ERROR
    assert said.message.endswith("missing: beta, gamma")
    watch.look(10_000, THREE, {1, 3}, ["beta"])
    watch.look(10_500, THREE, {1, 3}, ["beta"])
    assert caplog.messages[1:] == ["a majority of the voters is connected again"]


def test_a_short_absence_is_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    watch = MajorityWatch()
    for now_ms, here in ((0, {1}), (GRACE_MS - 1, {1}), (GRACE_MS, {1, 2}), (GRACE_MS + 1, {1})):
        watch.look(now_ms, THREE, here, ["gamma"])
    assert not caplog.records


def test_each_side_of_a_change_needs_its_majority(caplog: pytest.LogCaptureFixture) -> None:
    joint = Configuration((1, 2, 3, 4, 5), outgoing=(1, 2, 3), version=1)
    watch = MajorityWatch()
    for now_ms in (0, GRACE_MS):
        watch.look(now_ms, joint, {1, 4, 5}, ["beta", "gamma"])
    assert "missing: beta, gamma" in caplog.text

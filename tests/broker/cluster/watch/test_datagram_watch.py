"""What is logged of election datagrams that do not arrive: once, and when they come again."""

from __future__ import annotations

import logging

import pytest

from delaylog.broker.cluster.watch.member_watch import SILENT_MS, DatagramWatch


@pytest.fixture
def watch() -> DatagramWatch:
    return DatagramWatch(lambda peer: f"node {peer}", lambda: "10.0.0.1:8712")


def look(watch: DatagramWatch, start_ms: int, end_ms: int, ages_ms: dict[int, int | None]) -> None:
    """Twice a second, as the member does."""
    for now_ms in range(start_ms, end_ms, 500):
        watch.look(now_ms, ages_ms, ages_ms)


def test_silence_is_logged_once_with_the_port(
    watch: DatagramWatch, caplog: pytest.LogCaptureFixture
) -> None:
    look(watch, 0, 20_000, {2: None, 3: 100})
    [line] = caplog.messages
    assert line.startswith("no election datagrams come from node 2 to UDP 10.0.0.1:8712")
    assert watch.silent == [2]


def test_its_end_is_logged(watch: DatagramWatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    look(watch, 0, 10_000, {2: SILENT_MS})
    look(watch, 10_000, 20_000, {2: 300})
    assert caplog.messages[1:] == ["election datagrams come from node 2 again"]
    assert not watch.silent


def test_a_peer_has_time_after_each_connection(
    watch: DatagramWatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its datagrams are as old as its absence was long."""
    for start_ms in range(0, 20_000, 5_000):
        look(watch, start_ms, start_ms + 4_500, {2: 60_000})
        look(watch, start_ms + 4_500, start_ms + 5_000, {})
    assert not caplog.messages

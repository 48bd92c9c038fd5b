"""What a member looks at: lag, a missing majority, datagrams that do not arrive, addresses.

The lag of followers is compared with the time of each byte, which a plain list keeps. What is
missing is logged once, and when it is there again. Addresses may differ between the cluster file,
the options of `serve` and other nodes.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.cluster.config import Member
from delaylog.broker.cluster.members.node_status import Status
from delaylog.broker.cluster.watch.member_watch import (
    BOUNDS,
    GRACE_MS,
    NOTES_MAX,
    SILENT_MS,
    DatagramWatch,
    FollowerLag,
    MajorityWatch,
    announced,
    announced_elsewhere,
    unlike_options,
)
from delaylog.replication.configuration import Configuration

POLL_MS = 20
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=200
)
"""At each poll: bytes that are appended, and that each of two followers takes."""


@given(STEPS)
def test_the_lag_is_the_age_of_the_first_missing_byte(steps: list[tuple[int, int, int]]) -> None:
    lag = FollowerLag()
    appended_ms: list[int] = []
    matches = {2: 0, 3: 0}
    sums_ms = {2: 0, 3: 0}
    for number, (more, *taken) in enumerate(steps):
        now_ms = number * POLL_MS
        appended_ms += [now_ms] * more
        for node, count in zip(matches, taken, strict=True):
            matches[node] = min(matches[node] + count, len(appended_ms))
            if matches[node] < len(appended_ms):
                sums_ms[node] += now_ms - appended_ms[matches[node]]
        lag.look(now_ms, len(appended_ms), matches)
    for node, sum_ms in sums_ms.items():
        histogram = lag.histograms[str(node),]
        assert histogram.count == len(steps)
        assert round(histogram.sum * 1000) == sum_ms


def test_a_follower_that_is_away_costs_bounded_memory() -> None:
    """Its lag is still known, if less exactly."""
    lag = FollowerLag()
    polls = 20 * NOTES_MAX
    for number in range(polls):
        lag.look(number * POLL_MS, number + 1, {2: 0, 3: number + 1})
    assert len(lag._ends) == len(lag._times_ms) <= NOTES_MAX
    away, near = lag.histograms["2",], lag.histograms["3",]
    assert near.counts[0] == polls
    over_300_s = polls - 300_000 // POLL_MS
    assert 0.95 * over_300_s < away.counts[len(BOUNDS)] <= over_300_s


def test_a_node_that_does_not_lead_samples_nothing() -> None:
    """Nor does its time count when it leads later: what is there is as old as the last poll."""
    lag = FollowerLag()
    lag.look(0, 100, {})
    lag.look(5_000, 200, {})
    assert not lag.histograms
    lag.look(5_020, 300, {2: 150})
    assert lag.histograms["2",].sum == 0.02


# --------------------------------------------------------------------------- majority


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


# --------------------------------------------------------------------------- datagrams


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


# --------------------------------------------------------------------------- addresses


PEER = ("10.0.0.1", 8712)
ME = Member(1, "alpha", PEER, PEER, "http://10.0.0.1:8711")
RESP = replace(ME, resp=("10.0.0.1", 6379))
HTTPS = replace(ME, http_url="https://10.0.0.1:8711")


def test_a_node_announces_what_its_own_file_says() -> None:
    status = Status(**announced(ME))
    assert (status.http, status.peer) == ("http://10.0.0.1:8711", "10.0.0.1:8712")
    assert announced_elsewhere(ME, status) == {}


def test_another_file_says_otherwise() -> None:
    status = Status(http="http://10.0.0.1:9999", peer="10.0.0.9:8712")
    assert announced_elsewhere(ME, status) == {
        "http": ("http://10.0.0.1:9999", "http://10.0.0.1:8711"),
        "peer": ("10.0.0.9:8712", "10.0.0.1:8712"),
    }


def test_an_older_release_announces_nothing() -> None:
    assert announced_elsewhere(ME, Status()) == {}


@pytest.mark.parametrize(
    ("member", "http", "resp", "has_tls", "says"),
    [
        (ME, 8711, None, False, None),
        (RESP, 8711, 6379, False, None),
        (ME, 8710, None, False, "clients of this node to http://10.0.0.1:8711"),
        (ME, 8711, 6379, False, "no `resp` for this node"),
        (RESP, 8711, None, False, "10.0.0.1:6379, and it was started without --resp"),
        (
            RESP,
            8711,
            6380,
            False,
            "--resp listens on port 6380, and the cluster sends Redis clie",
        ),
        (HTTPS, 8711, None, True, None),
        (ME, 8711, None, True, "8711, and this node uses TLS: write its `http` as https://"),
        (HTTPS, 8711, None, False, "8711, and this node does not use TLS: unless a proxy"),
    ],
)
def test_options_of_serve(
    member: Member, http: int, resp: int | None, has_tls: bool, says: str | None
) -> None:
    found = list(unlike_options(member, http, resp, has_tls=has_tls))
    assert len(found) == (says is not None)
    assert says is None or says in found[0]

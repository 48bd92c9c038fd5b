"""The table of top: rows of a scrape, sorting, scrolling and keys."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from delaylog.broker.cli.watching.scrapes import (
    COLUMNS,
    OTHER,
    Change,
    TopicRow,
    bars,
    cells,
    parse_scrape,
    rows_of,
    seconds_text,
)
from delaylog.broker.cli.watching.screen import KEYS, View, detail, screen, table

BEFORE = """
delaylog_sent_total{namespace="default",topic="a"} 10
delaylog_sent_total{namespace="default",topic="b"} 10
"""
NOW = """
delaylog_sent_total{namespace="default",topic="a"} 30
delaylog_sent_total{namespace="default",topic="b"} 10
delaylog_sent_total{namespace="shop",topic="a"} 99
delaylog_sent_total{namespace="",topic="other"} 7
delaylog_living_messages{group="default",namespace="default",topic="a"} 9
delaylog_living_messages{group="mail",namespace="default",topic="a"} 3
delaylog_ready_messages{group="mail",namespace="default",topic="a"} 2
delaylog_leased_messages{group="default",namespace="default",topic="a"} 1
delaylog_oldest_due_age_seconds{group="mail",namespace="default",topic="a"} 90
delaylog_oldest_due_age_seconds{group="default",namespace="default",topic="a"} 4
delaylog_delivered_total{group="default",namespace="default",topic="b"} 8
delaylog_ended_total{group="default",namespace="default",state="dead",topic="b"} 2
delaylog_cluster_role{role="leader"} 1
delaylog_cluster_role{role="follower"} 0
"""


@pytest.fixture
def change() -> Change:
    return Change(parse_scrape(BEFORE, 0.0), parse_scrape(NOW, 2.0))


def shown(what: object, width: int = 160) -> list[str]:
    out = StringIO()
    Console(file=out, width=width).print(what)
    return out.getvalue().splitlines()


def test_rows_sum_groups_of_the_namespace(change: Change) -> None:
    a, other, b = rows_of(change, "default", "ready")
    assert a == TopicRow("a", 10, 0, 0, 9, 2, 1, 0, 90, None, None)
    assert (b.topic, b.out_per_s, b.ended_per_s, b.dead) == ("b", 4, 1, 2)
    assert other.topic == "(other topics)"
    assert [row.topic for row in rows_of(change, "shop", "topic")] == ["(other topics)", "a"]


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_sorts(change: Change, column: str) -> None:
    """Numbers from the largest one on, names in their order."""
    values = [getattr(row, column) or 0 for row in rows_of(change, "default", column)]
    assert values == sorted(values, reverse=column != "topic")


def test_keys(change: Change) -> None:
    view = View()
    view.topics = ["a", "b"]
    for key in ("\x1b[B", "\x1b[B", "j", "s"):
        view.press(key)
    assert (view.topic, view.sort) == ("b", "sent_per_s")
    view.press("\x1b[A")
    view.press("k")
    view.press("\r")
    assert (view.topic, view.detail) == ("a", True)
    view.press("\x1b")
    assert not view.detail
    view.press("?")
    assert not view.ended
    view.press("q")
    assert view.ended


def test_the_chosen_topic_stays_in_sight(change: Change) -> None:
    """Purpose: thousands of topics can be walked through. Method: a window of one line."""
    rows, view = rows_of(change, "default", "topic"), View(sort="topic", chosen=1)
    lines = shown(table(rows, view, 1, 160))
    assert len(lines) == 2
    assert lines[1].split()[0] == "a"
    view.chosen = 99
    assert shown(table(rows, view, 2, 160))[-1].split()[0] == "b"
    assert view.topic == "b"


def test_the_choice_follows_its_topic(change: Change) -> None:
    """Purpose: Enter shows what was chosen, not what has moved to its line meanwhile."""
    view = View(sort="topic")
    table(rows_of(change, "default", "topic"), view, 5, 160)
    view.press("j")
    view.press("j")
    assert view.topic == "b"
    for column in ("ready", "out_per_s", "topic"):
        table(rows_of(change, "default", column), view, 5, 160)
        assert view.topic == "b"
    table(rows_of(change, "shop", "topic"), view, 5, 160)
    assert view.topic == "a", "b is gone: the row in its place"


def test_the_row_of_other_topics_has_no_detail(change: Change) -> None:
    view = View(sort="topic")
    table(rows_of(change, "default", "topic"), view, 5, 160)
    assert view.topic == OTHER
    view.press("\r")
    assert not view.detail


def test_a_narrow_terminal_shows_fewer_columns(change: Change) -> None:
    """No title is cut on the usual eighty columns."""
    header, *_ = shown(table(rows_of(change, "default"), View(), 5, 80), width=80)
    titles = "topic sent/s out/s▾ ready leased oldest late p99"
    assert " ".join(header.split()) == titles


def test_a_detail_tells_what_bounds_its_topic(change: Change) -> None:
    """Purpose: whoever sees a topic stand still sees why, and no error is taken for a consumer."""
    stats = {"topic": "a", "counts": {"ready": 1}, "oldest_due_ms": 1_000, "bounded_by": "key"}
    lines = shown(detail(change, "default", stats))
    assert lines[2:4] == ["oldest message due 1970-01-01T00:00:01.000Z", "bounded by key"]
    refused = shown(detail(change, "default", {"topic": "a", "counts": {}, "error": "403 \x1b[2J"}))
    assert "403 \\x1b[2J" in refused
    assert not any("under lease" in line for line in refused)


@pytest.mark.parametrize("width", [80, 120])
def test_all_keys_fit_a_usual_terminal(change: Change, width: int) -> None:
    foot = shown(screen(change, ""), width)
    assert KEYS.split() == " ".join(foot).split()[-len(KEYS.split()) :]


def test_the_screen_says_what_is_wrong(change: Change) -> None:
    body = table(rows_of(change, "default"), View(), 10, 160)
    lines = shown(screen(change, body))
    assert "leader" in lines[1]
    assert "q quit" in lines[-1]
    assert shown(screen(change, body, "the broker does not answer"))[-1].startswith("the broker")
    hostile = shown(screen(change, body, "no \x1b[2J\x07"))[-1]
    assert hostile.startswith("no \\x1b[2J\\x07"), "an error may have the words of another server"
    assert not re.search(r"\x1b", "".join(lines))


def test_texts_of_durations() -> None:
    times = [None, 0.0, 0.0004, 0.0312, 1.26, 150, 7_300, 200_000]
    assert [seconds_text(each) for each in times] == [
        *("-", "-", "0.4 ms", "31 ms", "1.3 s", "2 m", "2 h", "2 d")
    ]
    assert bars([(0.01, 4), (0.1, 0), (float("inf"), 1)], 8) == [
        ("<= 10 ms", "████████", "4"),
        ("more", "██", "1"),
    ]
    row = TopicRow("t", 1234.5, 0.25, 0, 12_345, 0, 0, 0, 0, 0.004, None)
    assert cells(row) == (*("t", "1,234", "0.2", "0", "12,345", "0", "0", "0", "-", "4.0 ms", "-"),)

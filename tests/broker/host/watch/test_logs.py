"""Log lines are JSON objects whatever is logged."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from delaylog.broker.host.watch.logs import set_up_logs
from delaylog.broker.host.watch.quiet_log import REPEAT_S, QuietLog
from delaylog.log_lines import JsonFormatter, TextFormatter


def line_of(message: object, exc_info: object = None, **extra: object) -> dict[str, object]:
    """A record, formatted and read again."""
    record = logging.LogRecord("a.b", logging.WARNING, "f", 1, message, (), exc_info)  # type: ignore[arg-type]
    vars(record).update(extra)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    members: dict[str, object] = json.loads(text)
    return members


def test_members() -> None:
    """Time, level, logger, message and the extras."""
    members = line_of("hello", topic="t", count=5)
    assert str(members.pop("time")).endswith("Z")
    assert members == {
        "level": "warning",
        "logger": "a.b",
        "message": "hello",
        "topic": "t",
        "count": 5,
    }


def test_text_has_the_extras_too() -> None:
    """As name=value behind the message; what would break the line or the pair is in quotes."""
    record = logging.LogRecord("a.b", logging.WARNING, "f", 1, "the clock stepped", (), None)
    vars(record).update(step_ms=-40, why="no space\nleft", path="/a=b", empty="", topic="t")
    line = TextFormatter().format(record)
    assert line.endswith(
        " WARNING a.b the clock stepped step_ms=-40 why='no space\\nleft' path='/a=b' empty='' "
        "topic=t"
    )


def test_traceback() -> None:
    """An exception stands in one member, on the same line."""
    try:
        raise ValueError("no")
    except ValueError:
        members = line_of("failed", sys.exc_info())
    assert "ValueError: no" in str(members["exception"])


@pytest.mark.parametrize("value", ["\udcff", 2**70, b"\xff", object(), {1: 2}, float("nan"), {"a"}])
def test_odd_values(value: object) -> None:
    """What JSON does not know is written as text, never lost with a logging error."""
    assert "path" in line_of("odd", path=value)
    assert line_of(value)["message"]


def test_what_event_loops_say_without_an_address_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever owns the connection logs its end."""
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    set_up_logs("info", "json")
    logger = logging.getLogger("asyncio")
    for text, kept in (("SSL connection is closed", False), ("another thing", True)):
        record = logging.LogRecord("asyncio", logging.WARNING, "f", 1, text, (), None)
        assert bool(logger.filter(record)) is kept


# ------- Warnings that others can cause: the first of a kind, and then one in a while with a count


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

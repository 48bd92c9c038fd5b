"""What failed calls mean to a worker: what is said of them, and which of them end it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from delaylog.client.errors import ClientError, NotReached, api_error
from delaylog.client.workers.failures import REMIND_S, Outages, Startup

MISSING = api_error(404, {"code": "unknown", "detail": "there is no group 'g'"})
UNKNOWN_TOKEN = api_error(401, {"code": "unauthorized"})
MISSING_RIGHT = api_error(403, {"code": "forbidden", "detail": "the right receive is missing"})
NO_LEADER = api_error(503, {"code": "not_ready"})


def test_an_outage_is_told_of_as_long_as_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    """Once when it begins, again at intervals, and once more when the reason is another."""
    caplog.set_level(logging.INFO)
    outages = Outages("t", "a")
    for now_s in (0.0, 1.0, REMIND_S - 1, REMIND_S, REMIND_S + 1):
        outages.failed(MISSING, now_s)
    outages.failed(NotReached("nobody there"), REMIND_S + 2)
    outages.answered()
    outages.answered()
    told = [(record.levelname, record.message) for record in caplog.records]
    assert told == [
        ("ERROR", "t: cannot receive from a: 404 unknown: there is no group 'g'"),
        ("ERROR", "t: cannot receive from a, try 4: 404 unknown: there is no group 'g'"),
        ("WARNING", "t: cannot receive from a, try 6: nobody there"),
        ("INFO", "t: connected to a again, after 6 failed calls"),
    ]


@pytest.mark.parametrize(
    ("heard", "ended_by"),
    [
        ([(0, MISSING)], None),
        ([(0, MISSING), (1, None)], None),
        ([(1, None), (0, MISSING)], None),
        ([(0, MISSING), (1, MISSING)], MISSING),
        ([(0, MISSING), (1, NotReached("away"))], None),
        ([(0, NotReached("away")), (1, NO_LEADER)], None),
        ([(0, UNKNOWN_TOKEN)], UNKNOWN_TOKEN),
        ([(1, None), (0, UNKNOWN_TOKEN)], UNKNOWN_TOKEN),
        ([(0, None), (0, UNKNOWN_TOKEN)], UNKNOWN_TOKEN),
        ([(0, None), (1, None), (1, MISSING_RIGHT)], MISSING_RIGHT),
        ([(0, None), (1, None), (0, MISSING), (1, MISSING)], None),
        ([(0, MISSING), (1, MISSING), (0, None)], None),
        ([(0, UNKNOWN_TOKEN), (0, None)], None),
        ([(0, ValueError("wait_ms"))], ValueError),
    ],
)
def test_what_ends_a_consumer_that_has_just_begun(
    heard: list[tuple[int, Exception | None]], ended_by: Any
) -> None:
    """Of two shards: what each said in turn; None stands for an answer."""
    beginning = Startup(2)
    last = False
    for shard, error in heard:
        if error is None:
            beginning.answered(shard)
        else:
            last = beginning.refused(shard, error)
            assert last == (beginning.error is not None)
    if isinstance(ended_by, type):
        assert isinstance(beginning.error, ended_by)
    else:
        assert beginning.error is ended_by


def test_what_nobody_refused_ends_nothing() -> None:
    assert not Startup(1).refused(0, ClientError("the client is closed"))

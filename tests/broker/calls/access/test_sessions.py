"""Sessions and tickets over time: when they end, and what ends with them."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.calls.access.caller import Caller
from delaylog.broker.calls.access.sessions import (
    SESSION_MS,
    SESSIONS_EACH_MAX,
    TICKET_MS,
    Sessions,
)
from delaylog.broker.calls.answers import Problem
from delaylog.broker.engine.access.grants import ALL

CALLER = Caller("somebody", ALL)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(Random(1).randbytes)


def test_an_end_is_told_once(sessions: Sessions) -> None:
    secret, session = sessions.open(CALLER, 0)
    assert not sessions.some_ended(1)
    sessions.close("unknown")
    assert not sessions.some_ended(1)
    sessions.close(secret)
    assert not session.is_open(1)
    assert sessions.find(secret, 1) is None
    assert sessions.some_ended(1)
    assert not sessions.some_ended(1)


def test_a_session_that_expires_has_ended(sessions: Sessions) -> None:
    first = sessions.open(CALLER, 0)[1]
    later = sessions.open(CALLER, 5)[1]
    assert not sessions.some_ended(SESSION_MS - 1)
    assert sessions.some_ended(SESSION_MS)
    assert (first.ended, later.ended) == (True, False)
    assert sessions.some_ended(SESSION_MS + 5)
    assert not sessions.some_ended(2 * SESSION_MS)


def test_the_oldest_session_ends_for_one_too_many(sessions: Sessions) -> None:
    """One of the same caller: a principal ends no sessions of others."""
    other = sessions.open(Caller("other", ALL), 0)[1]
    opened = [sessions.open(CALLER, 0)[1] for _ in range(SESSIONS_EACH_MAX + 1)]
    assert [each.ended for each in opened] == [True] + [False] * SESSIONS_EACH_MAX
    assert not other.ended
    assert sessions.some_ended(1)


def test_a_ticket_ends_with_its_session(sessions: Sessions) -> None:
    secret, session = sessions.open(CALLER, 0)
    good, until_ms = sessions.make_ticket(CALLER, session, 0)
    assert until_ms == TICKET_MS
    assert sessions.use_ticket(good, until_ms - 1).maker is session
    late, _ = sessions.make_ticket(CALLER, session, 0)
    lost, _ = sessions.make_ticket(CALLER, session, 0)
    free, _ = sessions.make_ticket(CALLER, None, 0)
    with pytest.raises(Problem, match="not valid"):
        sessions.use_ticket(late, until_ms)
    sessions.close(secret)
    with pytest.raises(Problem, match="its session has ended"):
        sessions.use_ticket(lost, 1)
    assert sessions.use_ticket(free, 1).caller is CALLER

"""What a send of many comes to: which messages are there, and why the others are not."""

from __future__ import annotations

import pickle

import pytest

from delaylog.client import IdInUse, NotReached, Sent
from delaylog.client.errors import SendFailed
from delaylog.client.sending.outbox import all_sent

ONE, TWO = Sent("1", 5, "created"), Sent("2", 5, "rejected")


def test_all_are_there() -> None:
    assert all_sent([ONE, IdInUse(TWO)]) == [ONE, TWO]
    assert all_sent([]) == []


def test_some_are_not() -> None:
    away = NotReached("away")
    with pytest.raises(SendFailed, match="2 messages were not sent; the first: away") as caught:
        all_sent([ONE, away, IdInUse(TWO), away])
    failed = caught.value
    assert failed.failures == (away,)
    assert failed.rows == 2
    assert failed.outcomes == (ONE, away, TWO, away)
    again = pickle.loads(pickle.dumps(failed))
    assert [str(each) for each in again.outcomes] == [str(each) for each in failed.outcomes]

"""The outbox: sound limits, unread failures that are bounded, and what a send of many comes to."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from delaylog.client.errors import IdInUse, NotReached, SendFailed
from delaylog.client.models import Sent
from delaylog.client.sending.batch import Batch
from delaylog.client.sending.outbox import UNSEEN_BATCHES_MAX, Outbox, SendLimits, all_sent


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"linger": timedelta(-1)}, "linger lies"),
        ({"batch_max": 0}, "batch_max"),
        ({"batch_max": 100_001}, "batch_max"),
        ({"batch_bytes_max": 0}, "batch_bytes_max"),
        ({"pending_max": 9_999}, "pending_max"),
        ({"pending_bytes_max": 1}, "pending_bytes_max"),
        ({"retry_for": timedelta(-1)}, "retry_for lies"),
        # Brokers forget sequences after ten minutes: a later repeat would be a second message.
        ({"retry_for": timedelta(minutes=10)}, "ten minutes"),
    ],
)
def test_limits_that_cannot_hold_are_refused(limits: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SendLimits(**limits)


def failed_batch(rows: int) -> Batch:
    batch = Batch("t", 0, 0.0)
    for _ in range(rows):
        batch.add(b"", 0, None)
    batch.close()
    batch.fail(range(rows), NotReached("down"))
    return batch


def test_failures_are_told_once_and_only_while_nobody_looked() -> None:
    outbox = Outbox()
    seen, unseen = failed_batch(2), failed_batch(3)
    for batch in (seen, unseen):
        outbox.rows += batch.rows
        outbox.ended(batch)
    for row in range(2):
        assert isinstance(seen.outcome(row), NotReached)
    assert isinstance(unseen.outcome(0), NotReached)
    told = outbox.take_unseen()
    assert told is not None
    assert (told.rows, len(told.failures)) == (2, 1)
    assert outbox.take_unseen() is None
    assert outbox.rows == 0


def test_of_very_many_failures_only_the_count_is_kept() -> None:
    outbox = Outbox()
    for _ in range(UNSEEN_BATCHES_MAX + 5):
        outbox.ended(failed_batch(2))
    told = outbox.take_unseen()
    assert told is not None
    assert told.rows == 2 * (UNSEEN_BATCHES_MAX + 5)
    # What somebody looked at makes place for others.
    for _ in range(UNSEEN_BATCHES_MAX):
        batch = failed_batch(1)
        outbox.ended(batch)
        batch.outcome(0)
    outbox.ended(failed_batch(1))
    told = outbox.take_unseen()
    assert told is not None
    assert told.rows == 1


class Tracing:
    """A hook that adds headers."""

    def __init__(self, headers: dict[str, str] | None) -> None:
        self.headers = headers

    def on_sent(self, topic: str, n: int, seconds: float) -> None: ...

    def on_send_retry(self, topic: str, n: int, error: Exception) -> None: ...

    def on_send_failed(self, topic: str, n: int, error: Exception, seconds: float) -> None: ...

    def outgoing_headers(self, topic: str) -> dict[str, str] | None:
        if self.headers is not None and "fault" in self.headers:
            raise RuntimeError("of the hook's own")
        return self.headers


@pytest.mark.parametrize(
    ("added", "own", "found"),
    [
        ({"trace": "1"}, None, {"trace": "1"}),
        ({"trace": "1"}, {"trace": "mine", "a": "b"}, {"trace": "mine", "a": "b"}),
        (None, {"a": "b"}, {"a": "b"}),
        ({"fault": ""}, {"a": "b"}, {"a": "b"}),
    ],
)
def test_headers_of_a_hook_go_with_a_message_and_its_own_win(
    added: dict[str, str] | None, own: dict[str, str] | None, found: dict[str, str]
) -> None:
    assert Outbox(hooks=Tracing(added)).headers("t", own) == found
    assert Outbox().headers("t", own) == own


ONE, TWO = Sent("1", 5, "created"), Sent("2", 5, "rejected")


def test_all_of_many_are_there() -> None:
    assert all_sent([ONE, IdInUse(TWO)]) == [ONE, TWO]
    assert all_sent([]) == []


def test_some_of_many_are_not() -> None:
    away = NotReached("away")
    with pytest.raises(SendFailed, match="2 messages were not sent; the first: away") as caught:
        all_sent([ONE, away, IdInUse(TWO), away])
    failed = caught.value
    assert failed.failures == (away,)
    assert failed.rows == 2
    assert failed.outcomes == (ONE, away, TWO, away)
    again = pickle.loads(pickle.dumps(failed))
    assert [str(each) for each in again.outcomes] == [str(each) for each in failed.outcomes]

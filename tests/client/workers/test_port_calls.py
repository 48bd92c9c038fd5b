"""Which calls settle which messages, and how their answers read."""

from __future__ import annotations

import json
from array import array

import msgpack
import numpy as np
import pytest

from delaylog.client import AnswerLost, AsyncClient, NotReached
from delaylog.client._async.workers.ports import AsyncLinkPort
from delaylog.client.calls.call import Places
from delaylog.client.models import Settled
from delaylog.client.wire.bulk import SettleAnswer
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.port_calls import COLUMNS_MIN, merged, settle_parts
from tests.client.rows import received

PLACES = Places("default")
NOBODY = array("q")


def answer(*, gone: list[int] | None = None, unknown: list[int] | None = None) -> SettleAnswer:
    return SettleAnswer(0, 0, array("q", gone or []), array("q", unknown or []))


def test_one_lease_is_one_call_of_columns_however_small() -> None:
    (part,) = settle_parts(PLACES, "ack", received([5, 6], lease=9))
    assert part.call.path.endswith("/topics/t/ack")
    body = msgpack.unpackb(part.call.body or b"")
    assert body["lease"] == 9
    assert np.frombuffer(body["refs"], "<i8").tolist() == [5, 6]


def test_small_leases_share_a_call_of_receipts() -> None:
    small = [received([number], lease=number)[0] for number in (1, 2, 3)]
    large = received(range(10, 10 + COLUMNS_MIN), lease=9)
    columns, receipts = settle_parts(PLACES, "nack", [*small, *large], delay_ms=7)
    assert msgpack.unpackb(columns.call.body or b"")["delay_ms"] == 7
    body = json.loads(receipts.call.body or b"")
    assert body == {"receipts": [each.receipt for each in small], "delay_ms": 7}


def test_results_come_in_the_order_of_the_messages() -> None:
    rows = [*received([1], lease=1), *received(range(10, 10 + COLUMNS_MIN), lease=9)]
    columns, receipts = settle_parts(PLACES, "ack", rows)
    answered = [
        (columns, columns.results(answer(gone=[11], unknown=[12]), doubtful=False)),
        (receipts, receipts.results(["gone"], doubtful=False)),
    ]
    results = merged(len(rows), answered)
    assert results[:4] == [Settled.GONE, Settled.DONE, Settled.GONE, Settled.UNKNOWN]
    assert set(results[4:]) == {Settled.DONE}


async def test_a_broker_that_goes_away_between_two_parts_may_have_done_one() -> None:
    """Or the worker takes what it acked there for lost leases, when it repeats both."""
    rows = [*received([1], lease=1), *received(range(10, 10 + COLUMNS_MIN), lease=9)]
    outcomes = [answer(), NotReached("no connection")]

    async def carry(*_: object, **__: object) -> SettleAnswer:
        outcome = outcomes.pop(0)
        if isinstance(outcome, NotReached):
            raise outcome
        return outcome

    async with AsyncClient() as client:
        link = client._links[0]
        link.carry = carry  # type: ignore[assignment, method-assign]
        port = AsyncLinkPort(link, Consumer(topic="t", handler=print))
        with pytest.raises(AnswerLost, match="a part was carried out; then no connection"):
            await port.settle("ack", rows)
        outcomes.append(NotReached("no connection"))
        with pytest.raises(NotReached):
            await port.settle("ack", rows)


def test_after_a_lost_answer_gone_says_nothing() -> None:
    (part,) = settle_parts(PLACES, "ack", received([5, 6], lease=9))
    assert part.results(answer(gone=[5]), doubtful=True) == [Settled.UNKNOWN, Settled.DONE]

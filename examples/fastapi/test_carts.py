"""The test of `carts`: a broker inside the test, on a clock that the test moves."""

import time
from contextlib import AbstractAsyncContextManager

from carts import make_app
from fastapi.testclient import TestClient

from delaylog import AsyncEmbeddedBroker, ManualClock


def test_a_cart_that_rests_is_reminded_of_once(
    delaylog_embedded_async: AbstractAsyncContextManager[AsyncEmbeddedBroker[ManualClock]],
) -> None:
    app = make_app(delaylog_embedded_async)
    with TestClient(app) as web:
        clock: ManualClock = app.state.queue.clock
        web.put("/carts/ann")
        clock.advance(minutes=29)
        web.put("/carts/ann")  # starts the half hour again
        clock.advance(minutes=29)
        assert web.get("/reminded").json() == []
        clock.advance(minutes=1)
        deadline = time.monotonic() + 10
        while not web.get("/reminded").json() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert web.get("/reminded").json() == ["ann"]

"""Somebody is killed in the middle of a load: the broker, or the cluster's leader.

Afterwards the broker holds the input, each message once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from tests.broker.cluster.three_nodes import NODES, ThreeNodes
from tests.client.spark.misbehaving_server import Call
from tests.spark.frames import ids_of, messages
from tests.spark.real.fault_proxy import FaultProxy
from tests.spark.real.real_broker import BrokerView, RealBroker
from tests.spark.test_batch_sink import sink

ROWS = 12_000
SLOW = {"txnAppId": "load", "batchSize": 200, "retryWaitMs": 200, "maxRowsPerSecond": 4_000}
"""Sixty chunks within a second and a half or more."""
WAIT_S = 120


class Chunks:
    """Counts what Spark sends through a proxy, and does a deed in the midst of it."""

    def __init__(self, deed: Callable[[], None], after: int = 12) -> None:
        self._deed, self._after = deed, after
        self._lock = threading.Lock()
        self._count = 0
        self.done = threading.Event()

    def __call__(self, call: Call, status: int) -> None:
        if status >= 300 or not call.path.endswith(("/parts", "/messages")):
            return
        with self._lock:
            self._count += 1
            if self._count != self._after:
                return
        # Whoever gets this answer hears of it when the deed is done; others see it happen.
        self._deed()
        self.done.set()


@pytest.mark.parametrize("delivery", ["staged", "direct"])
def test_a_broker_that_is_killed_in_the_middle_goes_on(
    spark: SparkSession, real: RealBroker, delivery: str
) -> None:
    """At the same place, from what it had on disk."""

    def crash() -> None:
        real.kill()
        real.start()

    with FaultProxy(real.url) as proxy:
        proxy.answering = chunks = Chunks(crash)
        sink(messages(spark, 0, ROWS), proxy, **SLOW, delivery=delivery).save()
    assert chunks.done.is_set(), "the load was over before"
    if delivery == "staged":
        assert real.settled("load")["rows"] == ROWS
    real.assert_holds(ids_of(0, ROWS))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    nodes = ThreeNodes(tmp_path_factory.mktemp("cluster"))
    try:
        nodes.start(new_cluster=True)
        nodes.leader()
        yield nodes
    finally:
        nodes.clean_up()


@pytest.mark.parametrize("delivery", ["staged", "direct"])
def test_a_leader_that_is_killed_in_the_middle_is_succeeded(
    spark: SparkSession, three: ThreeNodes, delivery: str
) -> None:
    """Spark is told all members, and finds out who leads."""
    leader, topic = three.leader(), f"t-{delivery}"
    sent_at_death: list[int] = []

    def watch() -> None:
        view = BrokerView(three.url(leader))
        for _ in range(WAIT_S * 50):
            sent = view.sent(topic, topic if delivery == "staged" else None)
            if sent >= 2_000:
                three.kill(leader)
                if not over.is_set():
                    sent_at_death.append(sent)
                return
            if over.wait(0.02):
                return

    over = threading.Event()
    watching = threading.Thread(target=watch)
    watching.start()
    endpoints = ",".join(three.url(node) for node in NODES)
    options = {**SLOW, "txnAppId": topic, "endpoint": endpoints, "delivery": delivery}
    try:
        frame = messages(spark, 0, ROWS)
        frame.write.format("delaylog").options(**options, topic=topic).mode("append").save()
    finally:
        over.set()
        watching.join()
    assert sent_at_death, "the load was over before"
    assert sent_at_death[0] < ROWS
    view = BrokerView(three.url(three.leader()))
    if delivery == "staged":
        assert view.settled(topic)["rows"] == ROWS
    view.assert_holds(ids_of(0, ROWS), topic)
    three.start(leader)
    three.caught_up()

"""What a broker with every face scrapes is the table of metrics, in both forms of text."""

from __future__ import annotations

import re
import time
from typing import Any

import hiredis
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from delaylog.broker.host.watch.metrics_table import METRICS
from tests.broker.resp.conftest import RespBroker

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def scrape(broker: RespBroker, accept: str = "*/*") -> str:
    answer = broker.call("GET", "/metrics", headers={"Accept": accept})
    assert answer.status == 200
    return answer.body.decode()


def deliver_late(broker: RespBroker, topic: str) -> str:
    """Send a message and receive it some 30 ms after its due time; returns its id."""
    sent = broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    broker.await_metric(
        f'delaylog_ready_messages{{group="default",namespace="default",topic="{topic}"}}', 1
    )
    time.sleep(0.03)
    broker.post(f"/v1/topics/{topic}/receive", {})
    return str(sent["id"])


def test_the_scrape_is_the_table(resp_broker: RespBroker) -> None:
    """Purpose: no metric is missing or undocumented. Method: kinds by name, after a delivery.
    Metrics of a cluster are compared in tests/broker/cluster."""
    deliver_late(resp_broker, "scraped")
    client = resp_broker.connect()
    assert client.call("SET", "a", "b") == b"OK"
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", scrape(resp_broker), re.MULTILINE))
    found = {name: kind for name, kind in kinds.items() if not name.startswith("process_")}
    # prometheus_client says when a counter began.
    found = {name: kind for name, kind in found.items() if not name.endswith("_created")}
    assert found == {row.name: row.kind for row in METRICS.values() if "_cluster_" not in row.name}


def test_openmetrics_has_examples(resp_broker: RespBroker) -> None:
    """Purpose: a late message and a traced request can be found from their histograms. Method: the
    strict parser of the library, and the exemplars that it finds."""
    sent = deliver_late(resp_broker, "traced")
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    answer = resp_broker.call("GET", "/v1/topics/traced", headers=headers)
    assert answer.status == 200
    text = scrape(resp_broker, OPENMETRICS)
    samples: list[Any] = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    late = [
        each.exemplar
        for each in samples
        if each.name == "delaylog_lateness_seconds_bucket"
        and each.labels["topic"] == "traced"
        and each.exemplar
    ]
    assert [each.labels for each in late] == [{"message_id": sent}]
    assert late[0].value >= 0.03
    traced = [
        each.exemplar.labels
        for each in samples
        if each.name == "delaylog_request_seconds_bucket"
        and each.labels["call"] == "getTopic"
        and each.exemplar
    ]
    assert traced == [{"trace_id": TRACE}]
    assert "exemplar" not in scrape(resp_broker)
    assert TRACE not in scrape(resp_broker)


def test_values_move_with_what_happens(resp_broker: RespBroker) -> None:
    """Lateness, commits and requests are counted; disk and connections are not zero."""
    deliver_late(resp_broker, "moving")

    def value(name: str, **labels: str) -> float:
        wanted = {f'{key}="{each}"' for key, each in labels.items()}
        for line in scrape(resp_broker).splitlines():
            found = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
            if found and wanted <= set((found[1] or "").split(",")):
                return float(found[2])
        raise AssertionError(f"no {name} with {labels}")

    late = {"topic": "moving", "namespace": "default"}
    assert value("delaylog_ready_lateness_seconds_count", **late) == 1
    assert value("delaylog_lateness_seconds_count", **late) == 1
    assert value("delaylog_lateness_seconds_bucket", le="0.025", **late) == 0
    assert value("delaylog_lateness_seconds_sum", **late) >= 0.03
    assert value("delaylog_request_seconds_count", face="http", call="receive") >= 1
    assert value("delaylog_commit_wait_seconds_count") >= 1
    assert value("delaylog_fsync_seconds_count") >= 1
    assert value("delaylog_disk_bytes", part="log") > 0
    assert value("delaylog_connections", face="http") >= 1
    assert value("delaylog_recovery_seconds_count", step="total") == 1
    before = value("delaylog_request_seconds_count", face="resp", call="turn")
    client = resp_broker.connect()
    assert client.call("SET", "a", "b") == b"OK"
    assert value("delaylog_request_seconds_count", face="resp", call="turn") > before
    assert "unknown command" in str(client.call("NOSUCH"))
    for name, least in (("clients", 1), ("commands_total", 2), ("errors_total", 1)):
        assert value(f"delaylog_resp_{name}") >= least
    keys = value("delaylog_resp_keys")
    for words, more in ((("SET", "counted", "x"), 1), (("DEL", "counted"), 0)):
        client.call(*words)
        assert value("delaylog_resp_keys") == keys + more
    refused = {"face": "resp", "code": "bad_request"}
    for verb, reply in (("DL.RECEIVE", []), ("DL.CANCEL", 0)):
        assert client.call(verb, "moving", *(["1"] if verb == "DL.RECEIVE" else ["none"])) == reply
        assert value("delaylog_request_seconds_count", face="resp", call=verb.lower()) == 1
    with pytest.raises(hiredis.ReplyError, match="whole number"):
        raise client.call("DL.SEND", "moving", "soon", "x")
    assert value("delaylog_problems_total", **refused) == 1
    resp_broker.post("/v1/topics/aging/messages", {"body": "x"})
    time.sleep(0.05)
    assert value("delaylog_oldest_due_age_seconds", topic="aging", group="default") > 0.01


def test_clients_in_every_blocking_command_are_counted(resp_broker: RespBroker) -> None:
    """By the metric, INFO and the flags of CLIENT LIST, until they are answered."""
    client, waiting = resp_broker.connect(), [resp_broker.connect() for _ in range(4)]
    client.call("DL.SEND", "waited", 0, "first")
    ((_, receipt, *_),) = client.call("DL.RECEIVE", "waited", 1)
    gauge = "delaylog_resp_blocked_clients"
    waiting[0].send("BLPOP", "list", 20)
    waiting[1].send("DL.RECEIVE", "waited", 1, "WAIT", 20_000)
    waiting[2].send("DL.ACKRECEIVE", "waited", 1, "WAIT", 20_000, "RECEIPTS", receipt)
    # This one waits in a task, for its send.
    waiting[3].sock.sendall(
        hiredis.pack_command(("DL.SEND", "other", 3_600_000, "x"))
        + hiredis.pack_command(("DL.RECEIVE", "waited", 1, "WAIT", "20000"))
    )
    waiting[3].reply()
    resp_broker.await_metric(gauge, 4)
    assert b"blocked_clients:4\r\n" in client.call("INFO", "clients")
    listed = re.findall(rb" flags=b .* cmd=(\S+)", client.call("CLIENT", "LIST"))
    assert sorted(listed) == [b"blpop", b"dl.ackreceive", b"dl.receive", b"dl.receive"]
    client.call("RPUSH", "list", "x")
    for _ in range(3):
        client.call("DL.SEND", "waited", 0, "x")
    for each in waiting:
        each.reply()
    resp_broker.await_metric(gauge, 0)
    assert b"flags=b" not in client.call("CLIENT", "LIST")
    waiting[0].send("DL.RECEIVE", "waited", 1, "WAIT", 20_000)
    resp_broker.await_metric(gauge, 1)
    waiting[0].close()
    resp_broker.await_metric(gauge, 0)

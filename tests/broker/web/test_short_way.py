"""The short way of hot calls: every answer is that of the general ways, whatever is asked."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from delaylog.broker.calls.access.caller import ANYONE
from delaylog.broker.calls.context import BULK as BATCH
from delaylog.broker.calls.context import JSON, MSGPACK, BufferedContext, form_of
from delaylog.broker.calls.short_calls import SHORT, begin_of
from delaylog.broker.host.machine import REAL
from delaylog.broker.web.fast_lane import ShortRequest
from delaylog.contract.calls.call import ApiCall
from delaylog.contract.calls.table import ALL
from tests.broker.web.test_fast_lane import answers, fast, request
from tests.waiting import await_that

WAYS = {
    "short": ("", ""),
    # axios, and a client in Java.
    "short, by its library": (
        "Accept: application/json, text/plain, */*\r\n"
        "Content-Type: application/json; charset=UTF-8\r\n",
        "",
    ),
    # The lane knows the head. The body does not begin as that of a short call, and needs a task.
    "lane": ("", " "),
    "aiohttp": ("X-Request-Id: mine\r\n", ""),
}
"""Headers of a way, and what stands before its bodies."""
READY = 9
"""Messages of the calls below that are due now."""
LATE = 4_000_000_000_000

CALLS: list[tuple[str, str]] = [
    # Sends, good and bad.
    *(
        ("messages", body)
        for body in (
            '{"body":"one"}',
            ' {"body":"a blank before it"}',
            '{"body":"two","delay_ms":0,"tags":["a","b"],"headers":{"h":"v"}}',
            '{"body_base64":"AP8=","ttl_ms":60000,"max_retry":1}',
            '{"body":"past","deliver_at_ms":1600000000000}',
            # Before this one is due, its topic has no order of priorities that time could decide.
            '{"body":"far","delay_ms":3600000,"priority":3}',
            '{"body":"far","delay_ms":3.6e6}',
            '{"body":"named","id":"a","key":"k"}',
            '{"body":"again","id":"a","merge":"keep"}',
            '{"body":"again","id":"a","merge":"replace"}',
            '{"body":"again","id":"a","merge":"reject"}',
            '{"body":"again","id":"b","backoff":{"first_ms":5}}',
            '[{"body":"x"},{"body":"y","id":"y"}]',
            "[]",
            "",
            "{",
            "{}",
            "null",
            '"x"',
            "\xff",
            '{"body":1}',
            '{"body":"x","body_base64":"AA=="}',
            '{"body_base64":"?"}',
            '{"body":"x","nonsense":1}',
            '{"body":"x","delay_ms":"5"}',
            '{"body":"x","delay_ms":1.5}',
            '{"body":"x","deliver_at_ms":1600000000}',
            '{"body":"x","delay_ms":1,"deliver_at_ms":1600000000000}',
            f'{{"body":"x","deliver_at_ms":{LATE}}}',
            '{"body":"x","id":"~x"}',
            '{"body":"x","tags":"a"}',
            '{"body":"x","merge":"other"}',
            json.dumps({"body": "x" * 2_000}),
        )
    ),
    # Receives.
    *(
        ("receive", body)
        for body in (
            "{}",
            "",
            '{"max":3,"lease_ms":60000,"consumer":"c"}',
            '{"max":2,"begin":0}',
            '{"ids":["a"]}',
            '{"tags":["nobody has it"]}',
            '{"tags":["nobody has it"],"wait_ms":60}',
            '{"max":0}',
            '{"max":-1}',
            '{"max":1000000}',
            '{"max":1.5}',
            '{"group":"none"}',
            '{"group":"not a name!"}',
            '{"lease_ms":0}',
            '{"wait_ms":60001}',
            '{"consumer":"' + "x" * 300 + '"}',
            '{"what":1}',
            "[1]",
        )
    ),
    # Settlements: {0} and so on are receipts of the messages received above.
    *(
        (call, body)
        for call in ("begin", "extend", "nack", "reject", "ack")
        for body in (
            '{"receipts":["{0}"]}',
            '{"receipts":["{0}","{1}","{1}"],"lease_ms":30000,"delay_ms":null}',
            '{"receipts":["{2}"],"lease_ms":0}',
            '{"receipts":["{3}"],"delay_ms":10000,"reason":"broken"}',
            '{"receipts":["{4}"],"lease_ms":999999999999}',
            '{"receipts":["{0}"],"nonsense":1}',
            '{"receipts":[]}',
            '{"receipts":null}',
            '{"receipts":["0123"]}',
            '{"receipts":[1]}',
            '{"receipts":"{0}"}',
            '{"receipts":["00000000000000000000000000000000"]}',
            '{"ids":["b"],"force":true}',
            '{"ids":["b"]}',
            '{"ids":["b"],"force":true,"group":"none"}',
            '{"ids":["b"],"receipts":["{0}"]}',
            "{}",
            "",
            "[]",
        )
    ),
    ("ack_and_receive", '{"receipts":["{4}"],"max":2}'),
    ("ack_and_receive", '{"receipts":["{5}","{5}"],"max":1,"wait_ms":50}'),
    ("ack_and_receive", '{"receipts":["{5}"],"max":1,"group":"none"}'),
    ("ack_and_receive", '{"receipts":["xyz"]}'),
    ("ack_and_receive", '{"max":1}'),
    ("ack_and_receive", "{}"),
    ("ack_and_receive", '{"receipts":["{6}"],"wait_ms":-1}'),
    ("receive", '{"max":50}'),
]


@pytest.fixture(scope="module")
def served(sound_broker: Callable[..., Any]) -> Any:
    return sound_broker(limits="body_bytes_max = 1000")


def test_a_short_request_has_all_that_a_context_sets() -> None:
    """It is made without the constructors of its bases."""
    node: Any = SimpleNamespace(machine=REAL)
    way: Any = SimpleNamespace(node=node, ids=SimpleNamespace(new=lambda: "id"))
    route: Any = SimpleNamespace(call=ALL[0], topic_key=("default", "t"), params={"topic": "t"})
    head: Any = SimpleNamespace(headers={"Accept": JSON}, path="/", form=form_of({}))
    connection: Any = None
    short = ShortRequest(way, head, route, b"body", connection, ANYONE)
    general = BufferedContext(node, head.headers, "", b"body")
    general.about(route.call, route.topic_key, route.params)
    assert vars(general).items() <= vars(short).items()


def await_ready(broker: Any, topic: str) -> None:
    """Wait until the messages that are due now are ready."""

    def ready() -> int:
        return int(broker.counts(topic)["ready"])

    await_that(lambda: ready() == READY, lambda: f"{ready()} are ready, not {READY}")


def told(broker: Any, topic: str, way: str) -> list[Any]:
    """The answers to all calls, one after the other, without what differs from topic to topic."""
    receipts: list[str] = []
    seen: dict[str, str] = {}

    def known(found: re.Match[str]) -> str:
        return seen.setdefault(found[0], f"<{len(seen)}>")

    def receipt(found: re.Match[str]) -> str:
        return receipts[int(found[1])]

    out = []
    with broker.connect() as sock:
        for call, template in CALLS:
            if call == "receive" and not receipts:
                await_ready(broker, topic)
            body = re.sub(r"\{(\d)\}", receipt, template)
            headers, before = WAYS[way]
            raw = (before + body if body else "").encode("latin-1")
            sock.sendall(request(f"/v1/topics/{topic}/{call}", raw, headers))
            ((status, answer),) = answers(sock, 1)
            # A blank before it moves what orjson complains about.
            parsed = json.loads(re.sub(rb"column \d+ \(char \d+\)", b"", answer))
            receipts += [
                each["receipt"] for each in parsed.get("messages", ()) if "receipt" in each
            ]
            text = json.dumps(parsed).replace(topic, "<topic>")
            text = re.sub(r"~?[0-9a-f]{16,32}", known, text)
            out.append((call, template, status, re.sub(r"1[6-9]\d{11}|2\d{12}", "<ms>", text)))
    return out


def test_every_call_is_answered_alike(served: Any, topic: str) -> None:
    found = {}
    for way in WAYS:
        name = f"{topic}-{len(found)}"
        served.call("PUT", f"/v1/topics/{name}", {"backoff": {"first_ms": 60_000}})
        before = fast(served)
        found[way] = told(served, name, way)
        # Neither aiohttp's way nor a body of no object counts as fast.
        assert (fast(served) - before > len(CALLS) / 2) is (way != "aiohttp")
    for way in list(WAYS)[:-1]:
        for one, other in zip(found[way], found["aiohttp"], strict=True):
            assert one == other
    statuses = {status for _, _, status, _ in found["short"]}
    assert {200, 400, 404, 409} <= statuses


def test_a_client_that_leaves_takes_nothing(served: Any, topic: str) -> None:
    """It waits, or has just been woken: the next one gets the message, as a first delivery."""
    path = f"/v1/topics/{topic}"
    for late_s in (0.0, 0.001, 0.003):
        with served.connect() as leaves, served.connect() as stays:
            for sock in (leaves, stays):
                sock.sendall(request(f"{path}/receive", b'{"wait_ms":20000}'))
                time.sleep(0.05)
            served.call("POST", f"{path}/messages", {"body": "x"})
            time.sleep(late_s)
            leaves.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            leaves.close()
            # Longer than its poll lasts, whose end may be late.
            stays.settimeout(60)
            ((_, answer),) = answers(stays, 1)
            (message,) = json.loads(answer)["messages"] or [None]
            if message is None:
                # The first one was answered before it left: its lease runs.
                counts = served.call("GET", f"{path}/stats").json["counts"]
                assert counts["leased"] == 1
                return
            assert message["attempts"] == 1
            served.call("POST", f"{path}/ack", {"receipts": [message["receipt"]]})


@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_leaves_is_noticed_behind_what_is_not_read(
    served: Any, topic: str, way: str
) -> None:
    """It has sent so much behind its poll that its connection is not read."""
    headers, start = WAYS[way]
    path = f"/v1/topics/{topic}"
    raw = f'{start}{{"wait_ms":60000}}'.encode()
    ack = request(f"{path}/ack", f'{start}{{"receipts":[]}}'.encode(), headers)
    with served.connect() as leaves:
        leaves.sendall(request(f"{path}/receive", raw, headers) + ack * 200)
        served.await_waiting(1)
        leaves.sendall(ack)
        time.sleep(0.1)
        leaves.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    served.await_waiting(0)
    served.call("POST", f"{path}/messages", {"body": "x"})
    assert len(served.call("POST", f"{path}/receive", {"wait_ms": 5_000}).json["messages"]) == 1


def test_a_client_that_leaves_is_not_counted(served: Any, topic: str) -> None:
    """Only answered requests are, by every way: else polls of the dead would look slow."""
    wanted = 'delaylog_request_seconds_count{call="receive",face="http"} '

    def count() -> float:
        lines = served.call("GET", "/metrics").body.decode().splitlines()
        return sum(float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted))

    before = count()
    for way, (headers, start) in WAYS.items():
        with served.connect() as sock:
            raw = f'{start}{{"wait_ms":60000}}'.encode()
            sock.sendall(request(f"/v1/topics/{topic}/receive", raw, headers))
            served.await_waiting(1)
        served.await_waiting(0)
        with served.connect() as sock:
            raw = f'{start}{{"wait_ms":1}}'.encode()
            sock.sendall(request(f"/v1/topics/{topic}/receive", raw, headers))
            assert answers(sock, 1)[0][0] == 200
        before += 1
        assert count() == before, way


def test_long_polls_wait_and_are_woken(served: Any, topic: str) -> None:
    """Twenty consumers of single messages, and none of them is a task that somebody forgot."""
    path = f"/v1/topics/{topic}"
    seen: list[str] = []

    def consume() -> None:
        with served.connect() as sock:
            sock.settimeout(20)
            while True:
                sock.sendall(request(f"{path}/receive", b'{"wait_ms":10000}'))
                ((status, answer),) = answers(sock, 1)
                assert status == 200
                messages = json.loads(answer)["messages"]
                if not messages:
                    return
                seen.extend(each["body"] for each in messages)
                receipts = json.dumps({"receipts": [each["receipt"] for each in messages]})
                sock.sendall(request(f"{path}/ack", receipts.encode()))
                assert json.loads(answers(sock, 1)[0][1]) == {"results": ["done"]}

    threads = [threading.Thread(target=consume) for _ in range(20)]
    for thread in threads:
        thread.start()
    for n in range(200):
        served.call("POST", f"{path}/messages", {"body": str(n), "delay_ms": n % 7})
    for thread in threads:
        thread.join(40)
    assert sorted(seen, key=int) == [str(n) for n in range(200)]


FORMS = {"msgpack": (MSGPACK, "*/*"), "bulk": (BATCH, BATCH), "json to bulk": (JSON, BATCH)}
"""Media types of the body, and of the answer that is asked for."""
BULK_SEND = {"v": 1, "n": 2, "delay_ms": 0, "body_size": 1, "bodies": b"ab"}
FORM_CALLS: dict[str, list[tuple[str, Any]]] = {
    "msgpack": [
        ("messages", {"body": b"\xff", "delay_ms": 0}),
        ("messages", [{"body": "x"}, {"body": b"y", "id": "y"}]),
        ("messages", {"body": 1}),
        ("messages", {"bodies": b"x"}),
        ("messages", b"\xc1"),
        ("messages", [1] * 300),
        ("receive", {"max": 2, "lease_ms": 60_000}),
        ("receive", {"max": "2"}),
        ("receive", b""),
        ("extend", {"receipts": ["{0}"], "lease_ms": 60_000}),
        ("ack", {"receipts": ["{0}", "{1}", "{1}"]}),
        ("ack", {"receipts": [1]}),
        ("ack_and_receive", {"receipts": ["{2}"], "max": 3}),
    ],
    "bulk": [
        ("messages", BULK_SEND),
        ("messages", BULK_SEND | {"id_size": 1, "id": b"ij"}),
        ("messages", BULK_SEND | {"id_size": 1, "id": b"ik", "merge": "keep"}),
        ("messages", BULK_SEND | {"producer": "p", "sequence": 1}),
        ("messages", BULK_SEND | {"n": 300, "body_size": 0, "bodies": b""}),
        ("messages", BULK_SEND | {"n": 3}),
        ("messages", BULK_SEND | {"body_size": 2_000, "bodies": bytes(4_000)}),
        ("messages", BULK_SEND | {"more": 1}),
        ("messages", b"\xc1"),
        ("messages", b""),
        ("receive", {"max": 2, "columns": ["tags", "key"]}),
        ("receive", {"max": 40}),
        ("receive", {"v": 2, "max": 1}),
        ("receive", {"max": 0}),
        ("receive", b""),
        ("extend", {"v": 1, "lease": "{0}", "all": True, "lease_ms": 60_000}),
        ("nack", {"v": 1, "lease": "{0}", "all": True, "delay_ms": 90_000, "reason": "why"}),
        ("ack", {"v": 1, "lease": "{1}", "refs": "{1}"}),
        ("ack", {"v": 1, "lease": "{1}", "all": True}),
        ("ack", {"v": 1, "lease": 77, "refs": bytes(8)}),
        ("ack", {"v": 1, "lease": 77}),
        ("ack", {"v": 1, "lease": 77, "refs": bytes(9)}),
        ("ack_and_receive", {"v": 1}),
    ],
    "json to bulk": [
        ("messages", {"body": "x"}),
        ("messages", [{"body": "x"}, {"body": "y"}]),
        ("receive", {"max": 2, "columns": ["headers"]}),
        ("receive", {"max": 2}),
        ("receive", {"max": -2}),
        ("ack_and_receive", {"receipts": ["{0}"], "max": 3}),
    ],
}


def steady(value: Any, name: str = "") -> Any:
    """A part of an answer without what differs from topic to topic."""
    if isinstance(value, dict):
        return {key: steady(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [steady(each, name) for each in value]
    if name in ("refs", "deliver_at_ms") and isinstance(value, bytes):
        return len(value)
    if name in ("id", "receipt", "detail", "lease") and value:
        return re.sub(r"~?[0-9a-f]{16,32}|\d+", "<id>", str(value))
    return "<ms>" if isinstance(value, int) and value > 1_500_000_000_000 else value


def told_in(broker: Any, topic: str, form: str, more: str) -> list[Any]:
    """The answers to all calls of a form, one after the other."""
    receipts: list[str] = []
    leases: list[tuple[int, bytes]] = []
    kind, accept = FORMS[form]
    headers = f"Content-Type: {kind}\r\nAccept: {accept}\r\n{more}"

    def filled(name: str, value: Any) -> Any:
        if name == "receipts":
            return [receipts[int(each[1])] if isinstance(each, str) else each for each in value]
        if name in ("lease", "refs") and isinstance(value, str):
            return leases[int(value[1])][name == "refs"]
        return value

    out = []
    with broker.connect() as sock:
        for call, template in FORM_CALLS[form]:
            asked = template
            if isinstance(asked, dict):
                asked = {name: filled(name, value) for name, value in asked.items()}
            if not isinstance(asked, bytes):
                asked = json.dumps(asked).encode() if kind == JSON else msgpack.packb(asked)
            sock.sendall(request(f"/v1/topics/{topic}/{call}", asked, headers))
            ((status, answer),) = answers(sock, 1)
            packed = answer[:1] not in b"{["
            found = msgpack.unpackb(answer) if packed else json.loads(answer)
            for each in found.get("messages", ()):
                receipts += [each["receipt"]] if "receipt" in each else []
            if "refs" in found and found.get("lease"):
                leases.append((found["lease"], found["refs"]))
                origins = memoryview(found["refs"]).cast("q")
                receipts += [f"{found['lease']:016x}{origin:016x}" for origin in origins]
            out.append((call, template, status, packed, steady(found)))
    return out


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_answered_alike(served: Any, topic: str, form: str) -> None:
    found = []
    for more in ("", "X-Request-Id: mine\r\n"):
        name = f"{topic}-{len(found)}"
        served.call("PUT", f"/v1/topics/{name}", {"backoff": {"first_ms": 60_000}})
        found.append(told_in(served, name, form, more))
    for short, general in zip(*found, strict=True):
        assert short == general
    assert sum(status == 200 for _, _, status, _, _ in found[0]) >= 3


@pytest.mark.parametrize("call", [each for each in ALL if each.name in SHORT])
def test_hot_calls_need_no_task_in_any_form(call: ApiCall) -> None:
    for kind, accept in [("", ""), (JSON, "*/*"), (JSON, BATCH), (MSGPACK, "*/*"), (BATCH, BATCH)]:
        form = form_of({"Content-Type": kind, "Accept": accept})
        has_no_bulk_body = call.name == "ackAndReceive" and kind == BATCH
        assert (begin_of(call, form) is None) is has_no_bulk_body

"""Streams over WebSockets: deliveries, credit, settling in band, and how a stream ends."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgpack
import pytest

from delaylog.client.wire.bulk import decode_received
from delaylog.contract.calls.shapes import STATE
from tests.broker.conftest import Secured
from tests.broker.web.streams import path_of, streaming
from tests.waiting import until


def send(broker: Any, topic: str, *bodies: str, **members: Any) -> None:
    broker.post(f"/v1/topics/{topic}/messages", [{"body": body, **members} for body in bodies])


async def await_counts(broker: Any, topic: str, **wanted: int) -> None:
    await until(lambda: wanted.items() <= broker.counts(topic).items())


# --------------------------------------------------------------------------- deliveries, credit


async def test_messages_come_within_the_credit(broker: Any, topic: str) -> None:
    send(broker, topic, *"abcde")
    async with streaming(broker, topic, messages=2) as stream:
        first = await stream.messages(2)
        assert [each["body"] for each in first] == ["a", "b"]
        await await_counts(broker, topic, leased=2, ready=3)
        await stream.send(credit={"messages": 1})
        (third,) = await stream.messages(1)
        assert third["body"] == "c"
        await await_counts(broker, topic, leased=3, ready=2)


async def test_a_message_that_becomes_due_is_delivered(broker: Any, topic: str) -> None:
    async with streaming(broker, topic) as stream:
        send(broker, topic, "later", delay_ms=300)
        (found,) = await stream.messages(1)
        assert found["body"] == "later"
        assert found["attempts"] == 1


async def test_without_credit_nothing_is_leased(broker: Any, topic: str) -> None:
    send(broker, topic, "a")
    for query in ({"messages": 0}, {"bytes": 0}):
        async with streaming(broker, topic, **query) as stream:
            await asyncio.sleep(0.3)
            await await_counts(broker, topic, ready=1)
            await stream.send(credit={"messages": 1, "bytes": 1})
            assert len(await stream.messages(1)) == 1
        await await_counts(broker, topic, ready=1)


async def test_bytes_are_credit_too_and_one_message_may_exceed_them(
    broker: Any, topic: str
) -> None:
    send(broker, topic, *["x" * 1_000] * 10)
    async with streaming(broker, topic, messages=10, bytes=2_500) as stream:
        frame = await stream.until("messages")
        assert (len(frame["messages"]), frame["bytes"]) == (2, 2_000)
        # 500 bytes are left: the next message exceeds them.
        frame = await stream.until("messages")
        assert (len(frame["messages"]), frame["bytes"]) == (1, 1_000)
        await asyncio.sleep(0.2)
        await await_counts(broker, topic, leased=3)
        await stream.send(credit={"bytes": 501})
        assert len((await stream.until("messages"))["messages"]) == 1


async def test_a_frame_of_large_messages_is_bounded(broker: Any, topic: str) -> None:
    for _ in range(5):
        send(broker, topic, *["x" * 100_000] * 10)
    async with streaming(broker, topic, bytes=1 << 30) as stream:
        got = 0
        while got < 50:
            frame = await stream.until("messages")
            assert frame["bytes"] <= 256 << 10
            got += len(frame["messages"])


async def test_stop_takes_the_credit_back(broker: Any, topic: str) -> None:
    async with streaming(broker, topic) as stream:
        await stream.send(stop={})
        await stream.until("stopped")
        send(broker, topic, "a")
        await asyncio.sleep(0.2)
        await await_counts(broker, topic, ready=1)
        await stream.send(credit={"messages": 1, "bytes": 1})
        assert len(await stream.messages(1)) == 1


@pytest.mark.parametrize("form", ["msgpack", "bulk"])
async def test_binary_forms(broker: Any, topic: str, form: str) -> None:
    send(broker, topic, "a", "b", key="k", headers={"h": "v"})
    async with streaming(broker, topic, form=form) as stream:
        message = await stream.socket.receive()
        frame = msgpack.unpackb(message.data)
        if form == "bulk":
            batch = decode_received(message.data)
            assert (batch.n, batch.bodies(), batch.key_block) == (1, [b"a"], b"k")
            await stream.socket.send_bytes(
                msgpack.packb({"ack": {"lease": batch.lease, "refs": batch.refs.tobytes()}})
            )
        else:
            (found,) = frame["messages"]
            assert (found["body"], found["key"], found["headers"]) == (b"a", "k", {"h": "v"})
            await stream.socket.send_bytes(msgpack.packb({"ack": {"receipts": [found["receipt"]]}}))
        assert (await stream.until("settled"))["settled"] == 1
        await await_counts(broker, topic, acked=1)


async def test_tags_lease_and_begin_of_the_query(broker: Any, topic: str) -> None:
    send(broker, topic, "a", tags=["x"], id="a")
    send(broker, topic, "b", tags=["y,\\", "z"], id="b")
    async with streaming(
        broker,
        topic,
        tags=r"y\,\\,z",
        tags_mode="all",
        lease_ms=3_000,
        begin="false",
        consumer="me",
    ) as stream:
        (found,) = await stream.messages(1)
        assert found["body"] == "b"
        # The lease ends before its attempt has begun, so the attempt does not count.
        (again,) = await stream.messages(1)
        assert (again["body"], again["attempts"]) == ("b", 1)
        # First of all, while its lease lasts.
        await stream.send(begin={"receipts": [again["receipt"]], "lease_ms": 60_000})
        await stream.until("settled")
        stats = broker.call("GET", f"/v1/topics/{topic}/stats").json
        assert stats["consumers"] == [{"name": "me", "leased": 1}]
        life = broker.call("GET", f"/v1/topics/{topic}/messages/b?life=true").json["life"]
        assert "begun" in [step["event"] for step in life]


# --------------------------------------------------------------------------- settling in band


async def test_every_verb_settles(broker: Any, topic: str) -> None:
    send(broker, topic, *"abcde")
    async with streaming(broker, topic, messages=5) as stream:
        a, b, c, d, e = [each["receipt"] for each in await stream.messages(5)]
        await stream.send(ack={"receipts": [a]})
        await stream.send(nack={"receipts": [b], "delay_ms": 3_600_000, "reason": "busy"})
        await stream.send(reject={"receipts": [c], "reason": "bad"})
        await stream.send(extend={"receipts": [d], "lease_ms": 0})
        await stream.send(begin={"receipts": [e], "lease_ms": 60_000})
        while (await stream.until("settled"))["settled"] < 5:
            pass
        found = dict.fromkeys(("waiting", "ready", "leased", "acked", "dead"), 1)
        assert broker.counts(topic) == dict.fromkeys(STATE.words, 0) | found
        (dead,) = broker.call("GET", f"/v1/topics/{topic}/dead").json["messages"]
        assert dead["reason"] == "bad"


async def test_frames_and_refusals_are_metrics(broker: Any, topic: str) -> None:
    """The stream is one request, until it is open; each frame that settles is another one."""
    send(broker, topic, "a")
    async with streaming(broker, topic) as stream:
        await stream.ack(await stream.messages(1))
        await stream.until("settled")
        await stream.send(credit={"messages": -1})
        assert (await stream.socket.receive()).type is aiohttp.WSMsgType.CLOSE
    text = (await asyncio.to_thread(broker.call, "GET", "/metrics")).body.decode()
    counted = dict(line.rsplit(" ", 1) for line in text.splitlines())
    for series in (
        'request_seconds_count{call="ack",face="websocket"}',
        'request_seconds_count{call="stream",face="http"}',
        'problems_total{code="bad_request",face="http"}',
    ):
        assert float(counted[f"delaylog_{series}"]) > 0


async def test_a_failure_is_told_before_the_count(broker: Any, topic: str) -> None:
    send(broker, topic, "a", "b")
    async with streaming(broker, topic, messages=2) as stream:
        a, b = [each["receipt"] for each in await stream.messages(2)]
        await stream.send(ack={"receipts": [a]})
        await stream.send(ack={"receipts": [a, b]})
        told = [await stream.frame()]
        while told[-1].get("settled") != 2:
            told.append(await stream.frame())
        assert {"frame": 2, "gone": [a]} in told
    await await_counts(broker, topic, acked=2)


async def test_frames_keep_their_order_between_verbs(broker: Any, topic: str) -> None:
    """An extend before an ack must not become one after it, though both come in one packet."""
    send(broker, topic, *"abcdefgh")
    async with streaming(broker, topic, messages=8) as stream:
        receipts = [each["receipt"] for each in await stream.messages(8)]
        for each in receipts:
            await stream.send(extend={"receipts": [each], "lease_ms": 60_000})
            await stream.send(ack={"receipts": [each]})
        frames = [await stream.frame()]
        while frames[-1].get("settled") != 16:
            frames.append(await stream.frame())
        assert [frame for frame in frames if "gone" in frame] == []


async def test_a_receipt_of_another_group_is_gone(secured: Secured, topic: str) -> None:
    """The receipt of a group that the caller may not receive from settles nothing."""
    for group in ("mine", "other"):
        made = secured.call("PUT", f"/v1/topics/{topic}/groups/{group}")
        assert made.status in (200, 201)
    secured.call("POST", f"/v1/topics/{topic}/messages", {"body": "x"})
    taken = secured.call("POST", f"/v1/topics/{topic}/receive", {"group": "other"}).json
    (strange,) = taken["messages"]
    token = secured.token(f"receive:{topic}:mine")
    async with streaming(secured.broker, topic, "mine", token=token) as stream:
        (mine,) = await stream.messages(1)
        await stream.send(ack={"receipts": [strange["receipt"], mine["receipt"]]})
        assert (await stream.until("gone"))["gone"] == [strange["receipt"]]
        assert (await stream.until("settled"))["settled"] == 1
    again = secured.call(
        "POST", f"/v1/topics/{topic}/ack", {"receipts": [strange["receipt"]], "group": "other"}
    )
    assert again.json["results"] == ["done"]


# --------------------------------------------------------------------------- how a stream ends


@pytest.mark.parametrize("code", [1000, 1001, 4000])
async def test_leases_of_a_client_that_closes(broker: Any, topic: str, code: int) -> None:
    send(broker, topic, "a", "b")
    async with streaming(broker, topic) as stream:
        a, b = await stream.messages(2)
        await stream.ack([a])
        await stream.socket.close(code=code)
    kept = code == 4000
    await await_counts(broker, topic, acked=1, ready=0 if kept else 1, leased=1 if kept else 0)
    if kept:
        # The receipt stays valid, on another stream and in a call.
        results = broker.post(f"/v1/topics/{topic}/ack", {"receipts": [b["receipt"]]})["results"]
        assert results == ["done"]


async def test_a_broken_connection_keeps_its_leases_until_they_end(broker: Any, topic: str) -> None:
    send(broker, topic, "a")
    lease_ms = 1_500
    async with streaming(broker, topic, lease_ms=lease_ms) as stream:
        (first,) = await stream.messages(1)
        stream.break_off()
    async with streaming(broker, topic, lease_ms=lease_ms) as stream:
        (again,) = await stream.messages(1)
        assert again["attempts"] == 2
        # By the broker's clock, and not ours, which may be late.
        assert again["lease_until_ms"] - lease_ms >= first["lease_until_ms"]


async def test_a_client_that_has_gone_takes_no_messages(broker: Any, topic: str) -> None:
    for _ in range(20):
        async with streaming(broker, topic) as stream:
            stream.break_off()
    broker.await_metric("delaylog_streams", 0)
    send(broker, topic, "a")
    await asyncio.sleep(0.2)
    await await_counts(broker, topic, ready=1)


async def test_a_deleted_topic_ends_the_stream(broker: Any, topic: str) -> None:
    send(broker, topic, "a")
    for query in ({}, {"messages": 0}):
        async with streaming(broker, topic, **query) as stream:
            broker.call("DELETE", f"/v1/topics/{topic}?force=true")
            code, reason = await stream.closing()
            assert (code, reason) == (4404, "unknown: the topic or its group was deleted")
        send(broker, topic, "a")


async def test_a_revoked_token_ends_the_stream_and_returns_the_leases(
    secured: Secured, topic: str
) -> None:
    token = secured.principal("leaver", f"consumer:{topic}")
    secured.call("POST", f"/v1/topics/{topic}/messages", {"body": "x"})
    async with streaming(secured.broker, topic, token=token) as stream:
        await stream.messages(1)
        assert secured.call("DELETE", "/v1/principals/leaver").status == 200
        code, reason = await stream.closing()
        assert code == 4401
        assert reason.startswith("unauthorized: the token was revoked")
    stats = secured.call("GET", f"/v1/topics/{topic}/stats").json["counts"]
    assert (stats["ready"], stats["leased"]) == (1, 0)


@pytest.mark.parametrize("messages", [0, 100])
async def test_a_node_that_stops_says_so(sound_broker: Any, messages: int) -> None:
    broker = sound_broker()
    async with streaming(broker, "t", messages=messages) as stream:
        broker.terminate()
        assert await stream.closing() == (1001, "not_ready: the node stops; connect again")
    assert broker.wait() == 0
    broker.start()


async def test_refusals_before_the_upgrade(
    secured: Secured, topic: str, assert_problem: Any
) -> None:
    token = secured.token(f"consumer:{topic}")
    handshake = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    call = secured.call
    path = path_of(topic)
    assert_problem(call("GET", path, token=None, headers=handshake), 401, "unauthorized")
    other = secured.token("consumer:elsewhere")
    assert_problem(call("GET", path, token=other, headers=handshake), 403, "forbidden")
    nowhere = path_of(topic, "nowhere")
    assert_problem(call("GET", nowhere, headers=handshake), 404, "unknown", field="group")
    wrong = path_of(topic, messages="x")
    assert_problem(call("GET", wrong, token=token, headers=handshake), 400, "bad_request")
    assert_problem(call("GET", path, token=token), 400, "bad_request")
    for name, value, words in (
        ("Sec-WebSocket-Key", "short", "Sec-WebSocket-Key must be 16 bytes"),
        ("Connection", "keep-alive", "the header Connection lacks 'Upgrade'"),
    ):
        answer = call("GET", path, token=token, headers={**handshake, name: value})
        assert words in assert_problem(answer, 400, "bad_request")["detail"]
    old = call("GET", path, token=token, headers={**handshake, "Sec-WebSocket-Version": "8"})
    assert_problem(old, 426, "bad_request")
    assert old.headers["Sec-WebSocket-Version"] == "13"


async def test_a_page_of_another_site_is_refused(broker: Any, topic: str) -> None:
    async with aiohttp.ClientSession(broker.url) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(path_of(topic), origin="http://evil.example")
    assert refused.value.status == 403

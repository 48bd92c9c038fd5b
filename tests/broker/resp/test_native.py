"""The delay log's own verbs for Redis clients, against a live broker."""

from __future__ import annotations

import itertools
import socket
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.resp.conftest import RespBroker
from tests.broker.resp.resp_client import RespClient, is_error

_NUMBERS = itertools.count()


@pytest.fixture
def topic() -> str:
    """A fresh one."""
    return f"t{next(_NUMBERS)}"


def received(client: RespClient, topic: str, *options: Any, most: int = 100) -> list[list[Any]]:
    """What DL.RECEIVE gives."""
    reply = client.call("DL.RECEIVE", topic, most, *options)
    assert isinstance(reply, list), reply
    return reply


def test_ack_and_receive_in_one_command(client: RespClient, topic: str) -> None:
    client.call("DL.MSEND", topic, 0, "a", 0, "b", 0, "c")
    first, second = (receipt for _, receipt, *_ in received(client, topic, most=2))
    ask = ("DL.ACKRECEIVE", topic, 10, "WAIT", 5_000, "META", "RECEIPTS")
    alien = b"0" * 31 + b"7"
    results, messages = client.call(*ask, second, alien, first, second)
    assert results == [1, 0, 1, 1]
    ((_, receipt, body, *_, headers),) = messages
    assert (body, headers) == (b"c", [])
    assert client.call("DL.ACKRECEIVE", topic, 1, "RECEIPTS", first, receipt) == [[0, 1], []]
    for words in ((), ("RECEIPTS",), ("RECEIPTS", "x"), ("WAIT", "RECEIPTS", first)):
        assert is_error(client.call("DL.ACKRECEIVE", topic, 1, *words), "ERR")
    replies = client.pipeline(
        ("DL.SEND", topic, 0, "d"), ("DL.ACKRECEIVE", topic, 1, ask[-1], first)
    )
    assert replies[1][1][0][0] == replies[0], "what was sent before counts"


def test_answers_stand_in_the_order_of_their_commands(client: RespClient, topic: str) -> None:
    replies = client.pipeline(
        ("SET", "k", "1"),
        ("DL.SEND", topic, 0, "a"),
        ("GET", "k"),
        ("DL.SEND", topic, 10**15, "b"),
        ("DL.MSEND", topic, 0, "c", 0, "d"),
        ("DL.SEND", topic, 0, "e", "ID", "mine"),
        ("DL.RECEIVE", topic, 10),
        ("INCR", "k"),
    )
    assert replies[0] == b"OK"
    assert replies[2] == b"1"
    assert is_error(replies[3], "ERR delay-ms is at most")
    assert [message[0] for message in replies[6]] == [replies[1], *replies[4], b"mine"]
    assert [message[2] for message in replies[6]] == [b"a", b"c", b"d", b"e"]
    assert replies[5] == b"mine"
    assert replies[7] == 2


def test_plain_sends_and_others_of_a_turn_keep_their_order(client: RespClient, topic: str) -> None:
    replies = client.pipeline(
        ("DL.SEND", topic, 0, "a"),
        ("DL.SEND", topic, 0, "longer"),
        ("DL.SEND", topic, 0, "c", "PRIORITY", 0),
        ("DL.SEND", topic, 0, "d"),
        ("DL.SEND", topic, "@0", "e"),
        ("DL.SEND", topic, 0, "f"),
        ("DL.RECEIVE", topic, 10),
    )
    assert [message[0] for message in replies[6]] == replies[:6]
    bodies = [message[2] for message in replies[6]]
    assert bodies == [b"a", b"longer", b"c", b"d", b"e", b"f"]


def test_sends_of_many_clients_meet_in_one_batch(resp_broker: RespBroker, topic: str) -> None:
    clients = [resp_broker.connect() for _ in range(20)]
    for number, each in enumerate(clients):
        each.send("DL.SEND", topic, 0, f"body {number}")
    ids = {each.reply() for each in clients}
    assert len(ids) == 20
    messages = received(clients[0], topic)
    assert {message[0] for message in messages} == ids
    assert {message[2] for message in messages} == {f"body {n}".encode() for n in range(20)}
    for each in clients:
        each.close()


def test_one_wrong_send_of_a_turn_does_not_touch_the_others(client: RespClient, topic: str) -> None:
    assert client.call("DL.SEND", topic, 100_000, "a", "ID", "one") == b"one"
    replies = client.pipeline(
        ("DL.SEND", topic, 0, "b", "MERGE", "reject"),
        ("DL.SEND", topic, 0, "c", "ID", "one", "MERGE", "reject"),
        ("DL.SEND", topic, 0, "d", "ID", "~wrong"),
        ("DL.SEND", topic, 0, "e", "MERGE", "reject"),
    )
    assert is_error(replies[1], "CONFLICT")
    assert is_error(replies[2], "ERR ID must not begin with '~'")
    assert [message[2] for message in received(client, topic)] == [b"b", b"e"]


def test_a_failure_has_its_reason_and_consumer(client: RespClient, topic: str) -> None:
    """REASON of DL.NACK and CONSUMER of DL.RECEIVE are what DL.GET shows of the attempt."""
    client.call("DL.SEND", topic, 0, "x", "ID", "a")
    ((_, receipt, *_),) = received(client, topic, "CONSUMER", "r-1")
    assert client.call("DL.NACK", topic, "REASON", "no route", "DELAY", 0, receipt) == 1
    found = client.call("DL.GET", topic, "a")
    members = dict(zip(found[::2], found[1::2], strict=True))
    assert members[b"reason"] == b"no route"
    (failure,) = (dict(zip(f[::2], f[1::2], strict=True)) for f in members[b"failures"])
    assert (failure[b"cause"], failure[b"consumer"]) == (b"nack", b"r-1")
    assert failure[b"address"] == b"127.0.0.1"


@pytest.mark.parametrize("backoff", ["700", '{"first_ms": 700, "factor": 1.5}'])
def test_a_send_may_say_its_backoff_and_headers(
    client: RespClient, topic: str, backoff: str
) -> None:
    words = ("BACKOFF", backoff, "HEADERS", '{"h": "v"}', "ID", "x")
    client.call("DL.SEND", topic, 0, "body", *words)
    ((_, receipt, *_, headers),) = received(client, topic, "META")
    assert headers == [b"h", b"v"]
    nacked_ms = time.time() * 1000
    client.call("DL.NACK", topic, receipt)
    ((*_, due_ms, attempts),) = received(client, topic, "WAIT", 5_000)
    # The topic's jitter shortens it by up to a fifth.
    assert nacked_ms + 500 <= due_ms <= nacked_ms + 2_000
    assert attempts == 2


def test_an_id_that_was_acked_is_free_for_the_next_command(client: RespClient, topic: str) -> None:
    """In one pipeline: a job ends and is armed again under its id."""
    client.call("DL.SEND", topic, 0, "first", "ID", "job")
    ((_, receipt, *_),) = received(client, topic)
    sent = ("DL.SEND", topic, 0, "second", "ID", "job", "MERGE", "reject")
    assert client.pipeline(("DL.ACK", topic, receipt), sent) == [1, b"job"]
    ((own, _, body, *_),) = received(client, topic, "WAIT", 5_000)
    assert (own, body) == (b"job", b"second")


def test_sends_of_one_pipeline_with_other_merges_keep_their_order(
    client: RespClient, topic: str
) -> None:
    replies = client.pipeline(
        ("DL.SEND", topic, 0, "a", "ID", "y", "MERGE", "reject"),
        ("DL.SEND", topic, 0, "b", "ID", "x", "MERGE", "keep"),
        ("DL.SEND", topic, 0, "c", "ID", "x", "MERGE", "reject"),
        ("DL.SEND", topic, 0, "d"),
    )
    assert replies[:2] == [b"y", b"x"]
    assert is_error(replies[2], "CONFLICT"), "the message that was confirmed before it is kept"
    assert [message[2] for message in received(client, topic)] == [b"a", b"b", b"d"]


def test_an_id_is_not_free_before_its_ack(client: RespClient, topic: str) -> None:
    client.call("DL.SEND", topic, 0, "first", "ID", "job")
    ((_, receipt, *_),) = received(client, topic)
    sent = ("DL.SEND", topic, 0, "second", "ID", "job", "MERGE", "reject")
    refused, acked, again = client.pipeline(sent, ("DL.ACK", topic, receipt), sent)
    assert is_error(refused, "CONFLICT")
    assert (acked, again) == (1, b"job")


@pytest.mark.parametrize("count", [1, 3, 300])
def test_a_receipt_that_is_named_twice_counts_once(
    client: RespClient, topic: str, count: int
) -> None:
    client.call("DL.MSEND", topic, *(0, "x") * count)
    receipts = [message[1] for message in received(client, topic, most=count)]
    assert client.call("DL.EXTEND", topic, 60_000, *receipts, receipts[0]) == count
    assert client.call("DL.NACK", topic, "DELAY", 0, *receipts, receipts[0]) == count
    receipts = [message[1] for message in received(client, topic, "WAIT", 5_000, most=count)]
    assert client.call("DL.ACK", topic, receipts[0], *receipts) == count


SENDS = st.tuples(
    st.just("send"),
    st.sampled_from([(), ("RETRIES", 3), ("ID", "x"), ("ID", "y")]),
    st.sampled_from([(), ("MERGE", "keep"), ("MERGE", "replace"), ("MERGE", "reject")]),
)
RECEIPTS = st.lists(st.integers(0, 2), min_size=1, max_size=3)
COMMANDS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        SENDS
        | st.tuples(st.just("ack"), RECEIPTS)
        | st.tuples(st.sampled_from(["nack", "extend"]), RECEIPTS)
        | st.sampled_from([("msend",), ("receive",), ("plain",)])
        | st.tuples(st.sampled_from(["get", "cancel", "reschedule"]), st.sampled_from("xy")),
    ),
    min_size=2,
    max_size=9,
)


def words_of(
    number: int, topic: str, command: tuple[Any, ...], receipts: list[bytes]
) -> tuple[Any, ...]:
    """The words of a command; messages are named by its number."""
    verb, *given = command
    if verb == "send":
        return ("DL.SEND", topic, 0, str(number), *given[0], *given[1])
    if verb == "msend":
        return ("DL.MSEND", topic, 0, f"{number} m", 0, f"{number} n")
    if verb == "receive":
        return ("DL.RECEIVE", topic, 1)
    if verb == "plain":
        return ("INCR", f"k {topic}")
    if verb in ("get", "cancel"):
        return (f"DL.{verb}", topic, *given)
    if verb == "reschedule":
        return ("DL.RESCHEDULE", topic, *given, "@1700000000000")
    options = {"ack": (), "nack": ("DELAY", 0), "extend": (60_000,)}[verb]
    return (f"DL.{verb}", topic, *options, *(receipts[each] for each in given[0]))


def told(reply: Any) -> Any:
    """A reply without what differs from one run to another: ids, receipts, times."""
    if isinstance(reply, list) and b"body" in reply:
        members = dict(zip(reply[::2], reply[1::2], strict=True))
        return {name: members[name] for name in (b"body", b"state", b"attempts")}
    if isinstance(reply, list) and len(reply) == 5 and isinstance(reply[3], int):
        own, _, body, _, attempts = reply
        return told(own), body, attempts
    if isinstance(reply, list):
        return list(map(told, reply))
    if isinstance(reply, Exception):
        return str(reply)
    if isinstance(reply, int):
        return min(reply, 10**12)
    return b"~" if isinstance(reply, bytes) and reply[:1] == b"~" else reply


@given(commands=COMMANDS)
@settings(deadline=None)
def test_a_pipeline_is_carried_out_as_its_commands_one_by_one(
    resp_broker: RespBroker, commands: list[tuple[str, tuple[Any, ...]]]
) -> None:
    """The answers, what is stored, and the order in which it is delivered."""
    client, outcomes = resp_broker.connect(), []
    for pipelined in (True, False):
        name = f"p{next(_NUMBERS)}"
        receipts = {}
        for topic in "ab":
            for own in ("x", "y", "z"):
                client.call("DL.SEND", name + topic, 0, "before", "ID", own)
            receipts[topic] = [each[1] for each in received(client, name + topic)]
            assert len(receipts[topic]) == 3
        words = [
            words_of(number, name + topic, command, receipts[topic])
            for number, (topic, command) in enumerate(commands)
        ]
        replies = client.pipeline(*words) if pipelined else [client.call(*each) for each in words]
        for topic in "ab":
            replies += [client.call("DL.GET", name + topic, own) for own in "xyz"]
            replies += received(client, name + topic)
        outcomes.append(list(map(told, replies)))
    client.close()
    assert outcomes[0] == outcomes[1]


@given(
    ids=st.lists(st.sampled_from([(), ("ID", "x"), ("ID", "y")]), min_size=3, max_size=9),
    merge=st.sampled_from(["keep", "replace", "reject"]),
    pending=st.integers(1, 3),
)
@settings(deadline=None)
def test_sends_of_a_pipeline_use_up_a_quota_in_their_order(
    resp_broker: RespBroker, ids: list[tuple[str, ...]], merge: str, pending: int
) -> None:
    """A repeat of an id is answered like the first send of it, and never goes before it."""
    client, outcomes = resp_broker.connect(), []
    for pipelined in (True, False):
        topic = f"q{next(_NUMBERS)}"
        created = resp_broker.call("PUT", f"/v1/topics/{topic}", {"quota": {"pending": pending}})
        assert created.status == 201
        words = [
            ("DL.SEND", topic, 0, str(number), "MERGE", merge, *own)
            for number, own in enumerate(ids)
        ]
        replies = client.pipeline(*words) if pipelined else [client.call(*each) for each in words]
        outcomes.append(list(map(told, [replies, sorted(received(client, topic))])))
    client.close()
    assert outcomes[0] == outcomes[1]


def test_what_changes_answer_and_looks_show(client: RespClient, topic: str) -> None:
    client.call("DL.SEND", topic, 0, "x")
    ((_, receipt, *_),) = received(client, topic)
    assert client.call("DL.NACK", topic, "DELAY", 0, receipt) == 1
    ((_, again, _, _, attempts),) = received(client, topic, "WAIT", 1000)
    assert attempts == 2
    assert client.call("DL.ACK", topic, again, receipt) == 1
    client.call("DL.SEND", topic, 3_600_000, "later", "ID", "l", "RETRIES", 3)
    due_ms = client.call("DL.RESCHEDULE", topic, "l", 7_200_000)
    assert abs(due_ms - time.time() * 1000 - 7_200_000) < 5_000
    found = client.call("DL.GET", topic, "l")
    members = dict(zip(found[::2], found[1::2], strict=True))
    assert (members[b"max_retry"], members[b"body"]) == (3, b"later")
    assert client.call("DL.CANCEL", topic, "l", "unknown") == 1
    assert is_error(client.call("DL.RESCHEDULE", topic, "l", 5), "TOOLATE")
    assert is_error(client.call("DL.RESCHEDULE", topic, "unknown", 5), "UNKNOWN")
    stats = client.call("DL.STATS", topic)
    assert dict(zip(stats[::2], stats[1::2], strict=True))[b"sent"] == 2


def test_an_absolute_time_and_a_namespace(
    client: RespClient, resp_broker: RespBroker, topic: str
) -> None:
    due_ms = int(time.time() * 1000) + 150
    client.call("DL.SEND", f"ns1/{topic}", f"@{due_ms}", "x")
    assert received(client, topic, "WAIT", 300) == []
    (message,) = received(client, f"ns1/{topic}", "WAIT", 2000)
    assert message[3] == due_ms
    found = resp_broker.call("GET", f"/v1/ns/ns1/topics/{topic}")
    assert found.status == 200


@pytest.mark.parametrize(
    ("argv", "start"),
    [
        (("DL.SEND", "t"), "ERR wrong number of arguments for 'dl.send' command"),
        (("DL.SEND", "a b", 0, "x"), "ERR a topic is named"),
        (("DL.SEND", "..", 0, "x"), "ERR a topic is named"),
        (("DL.SEND", "../t", 0, "x"), "ERR a topic is named"),
        (("DL.SEND", "t", "soon", "x"), "ERR delay-ms must be a whole number"),
        (("DL.SEND", "t", "@x", "x"), "ERR a time is written as @"),
        (("DL.SEND", "t", 10**15, "x"), "ERR delay-ms is at most 316224000000 ms (10 years)"),
        (("DL.SEND", "t", "@1795600000", "x"), "ERR the due time 1795600000 is before 2001-09-09"),
        (("DL.MSEND", "t", "@1795600000", "x"), "ERR the due time 1795600000 is before 2001"),
        (("DL.SEND", "t", 0, "x", "PRIORITY"), "ERR syntax error: write PRIORITY value"),
        (("DL.SEND", "t", 0, "x", "PRIORITY", "high"), "ERR PRIORITY must be an integer"),
        (("DL.SEND", "t", 0, "x", "TTL", -2), "ERR TTL must lie from -1 to"),
        (("DL.SEND", "t", 0, "x", "KEY", b"\xff"), "ERR KEY is not UTF-8"),
        (("DL.RECEIVE", "t", 1, "TAGS", 1, b"\xff"), "ERR a tag is not UTF-8"),
        (("DL.RECEIVE", "t", 1, "GROUP", b"\xff"), "ERR GROUP is not UTF-8"),
        (("DL.SEND", "t", 0, "x", "TAGS", 3, "a"), "ERR the count of tags"),
        (("DL.SEND", "t", 0, "x", "TAGS", 1, ""), "ERR TAGS must have 1 to 64 bytes each"),
        (("DL.SEND", "t", 0, "x", "MERGE", "never"), "ERR MERGE must be one of"),
        (("DL.SEND", "t", 0, "x", "BACKOFF", "soon"), "ERR BACKOFF must be a JSON object"),
        (("DL.SEND", "t", 0, "x", "HEADERS", "[" * 200_000), "ERR HEADERS must be a JSON object"),
        (("DL.SEND", "t", 0, "x", "BACKOFF", "null"), "ERR BACKOFF must be a JSON object"),
        (("DL.SEND", "t", 0, "x", "PRIORITY", "9" * 5_000), "ERR PRIORITY must be an integer"),
        (("DL.SEND", "t", 0, "x", "BACKOFF", -1), "ERR backoff.first_ms must lie from 0"),
        (("DL.SEND", "t", 0, "x", "HEADERS", "[]"), "ERR HEADERS must be an object of texts"),
        (
            ("DL.SEND", "t", 0, "x", "COLOUR", "red"),
            "ERR syntax error: there is no option 'COLOUR'",
        ),
        (("DL.SEND", "t", 0, b"x" * ((4 << 20) + 1)), "TOOLARGE"),
        (("DL.MSEND", "t", 0, "x", 5), "ERR after the topic, give pairs"),
        (("DL.MSEND", "t", "5", "x", "07", "y"), "ERR delay-ms must be a whole number"),
        (("DL.MSEND", "t", "10", "x", "07", "y"), "ERR delay-ms must be a whole number"),
        (("DL.MSEND", "t", "107", "x", "07", "y"), "ERR delay-ms must be a whole number"),
        (("DL.MSEND", "t", "5", "x", "+7", "y"), "ERR delay-ms must be a whole number"),
        (("DL.MSEND", "t", "5", "x", "", "y"), "ERR delay-ms must be a whole number"),
        (("DL.MSEND", "t", "5", "x", "7\0", "y"), "ERR delay-ms must be a whole number"),
        (("DL.MSEND", "t", 0, "x", "y", "z"), "ERR delay-ms must be a whole number"),
        (("DL.RECEIVE", "t", 0), "ERR max must be"),
        (("DL.SEND", "t", 0, "x", "TAGS"), "ERR syntax error: write TAGS n tag"),
        (("DL.RECEIVE", "t", 1, "WAIT"), "ERR syntax error: write WAIT value"),
        (("DL.RECEIVE", "t", 1, "BLOCK", 5), "ERR syntax error: there is no option 'BLOCK'"),
        (("DL.RECEIVE", "t", 1, "a\r\nb"), "ERR syntax error: there is no option 'a  b'"),
        (("DL.RECEIVE", "t", 1, "TAGS", 1, "a\nb"), "ERR a tag must not hold a newline"),
        (("DL.RECEIVE", "t", 1, "TAGS", 1, ""), "ERR "),
        (("DL.RECEIVE", "t", 1, "TAGS", 1, "x" * 65), "ERR "),
        (("DL.RECEIVE", "t", 1, "TAGS", 17, *"abcdefghijklmnopq"), "ERR "),
        (("DL.RECEIVE", "t", 1, "WAIT", -1), "ERR WAIT must be"),
        (("DL.ACK", "t", "receipt"), "ERR a receipt is 32 hex digits"),
        (("DL.ACK", "t", "z" * 32), "ERR a receipt is 32 hex digits"),
        (("DL.NACK", "t", "DELAY", 5), "ERR syntax error: write DELAY ms receipt"),
        (("DL.NACK", "t", "REASON", "x" * 1_025, "0" * 32), "ERR reason "),
        (("DL.RECEIVE", "t", 1, "CONSUMER", "x" * 256), "ERR consumer "),
        (("DL.EXTEND", "t", "x", "0" * 32), "ERR lease-ms must be"),
        (("DL.CANCEL", "t"), "ERR wrong number of arguments"),
    ],
)
def test_mistakes_are_named(client: RespClient, argv: tuple[Any, ...], start: str) -> None:
    assert is_error(client.call(*argv), start), client.call(*argv)
    assert client.call("PING") == b"PONG"


def test_the_verbs_are_no_part_of_transactions(client: RespClient, topic: str) -> None:
    assert client.call("MULTI") == b"OK"
    reply = client.call("DL.SEND", topic, 0, "x")
    assert is_error(reply, "ERR Command not allowed inside a transaction")
    assert is_error(client.call("EXEC"), "EXECABORT")


def test_who_waits_is_woken_by_a_send_of_another(resp_broker: RespBroker, topic: str) -> None:
    waiting, sender = resp_broker.connect(), resp_broker.connect()
    waiting.send("DL.RECEIVE", topic, 1, "WAIT", 10_000)
    waiting.send("PING")
    time.sleep(0.1)
    sender.call("DL.SEND", topic, 0, "x")
    assert waiting.reply()[0][2] == b"x"
    assert waiting.reply() == b"PONG"
    waiting.close()
    sender.close()


def test_a_client_that_leaves_is_noticed_behind_what_is_not_read(
    resp_broker: RespBroker, client: RespClient, topic: str
) -> None:
    """It has sent so much behind its poll that its connection is not read."""
    with socket.create_connection(("127.0.0.1", resp_broker.resp_port), 10) as leaves:
        leaves.sendall(f"DL.RECEIVE {topic} 1 WAIT 60000\r\n".encode())
        resp_broker.await_waiting(1)
        leaves.sendall(f"PING {'x' * 100}\r\n".encode() * 3_000)
        time.sleep(0.2)
        leaves.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    resp_broker.await_waiting(0)
    client.call("DL.SEND", topic, 0, "x")
    assert len(client.call("DL.RECEIVE", topic, 1, "WAIT", 5_000)) == 1


def test_a_large_batch_goes_in_whole(client: RespClient, topic: str) -> None:
    pairs = [word for n in range(5000) for word in (n % 7, f"{n:090}")]
    ids = client.call("DL.MSEND", topic, *pairs)
    assert len(set(ids)) == 5000
    got: list[bytes] = []
    while len(got) < 5000:
        messages = received(client, topic, "WAIT", 2000, most=1000)
        assert messages
        got += [message[2] for message in messages]
        assert client.call("DL.ACK", topic, *(message[1] for message in messages)) == len(messages)
    assert sorted(got) == sorted(f"{n:090}".encode() for n in range(5000))


def test_bytes_that_are_no_text_name_no_message(client: RespClient) -> None:
    """They once stood for U+FFFD, which may be somebody's id."""
    assert client.call("DL.SEND", "odd-ids", 60_000, "x", "ID", "\ufffd")
    assert is_error(client.call("DL.CANCEL", "odd-ids", b"\xff"), "ERR an id is not UTF-8")
    assert client.call("DL.CANCEL", "odd-ids", "\ufffd") == 1

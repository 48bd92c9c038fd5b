"""A held broker over its sockets: a restored copy does nothing until an operator releases it.

Method: brokers are processes, the receiver of pushes is a real HTTP server. What must not happen is
looked for while something else that needs longer happens: schedules of the original go on firing.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delaylog.client import Client, Held
from tests.broker.push.sink import Sink, started_sink
from tests.starts.warm import as_text, run_warm
from tests.waiting import await_that

HOLD = "/v1/hold"


def delaylog(*words: object) -> str:
    """What a command that worked has printed."""
    done = as_text(run_warm(*words))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def sink() -> Iterator[Sink]:
    with started_sink() as server:
        yield server


def pushing(sink: Sink) -> tuple[str, ...]:
    """Options of a broker that may push to the sink."""
    return ("--push-allow", "127.0.0.0/8", "--push-ports", str(sink.server_address[1]))


@pytest.fixture
def restored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Path]:
    """Makes a folder whose `data` is restored from a backup of a broker."""

    def restore(broker: Any) -> Path:
        # The folder stays until the broker ends, after the test.
        folder = tmp_path_factory.mktemp("copy")
        delaylog("backup", broker.data_dir, folder / "backup")
        said = delaylog("restore", folder / "backup", folder / "data")
        assert "held" in said
        return folder

    return restore


def of_port(sink: Sink) -> str:
    return f"http://127.0.0.1:{sink.server_address[1]}/hook"


def test_a_restored_copy_pushes_and_fires_nothing_until_it_is_resumed(
    sound_broker: Callable[..., Any], restored: Callable[[Any], Path], sink: Sink
) -> None:
    """The original goes on. Each push of the copy is one that the original has made or will make:
    a receiver recognises it by its id.
    """
    original = sound_broker(*pushing(sink))
    original.call("PUT", "/v1/topics/hooks/groups/default/target", {"url": of_port(sink)})
    original.post("/v1/topics/hooks/messages", {"id": "m1", "body": "mail", "delay_ms": 2_000})
    ticks = {"cron": "* * * * * *", "body": "tick", "catch_up": "all"}
    original.call("PUT", "/v1/topics/hooks/schedules/tick", ticks)
    folder = restored(original)
    copy = sound_broker(*pushing(sink), folder=folder)

    def ids(body: bytes) -> list[str]:
        return [headers["webhook-id"] for headers, got in sink.got if got == body]

    await_that(lambda: len(ids(b"tick")) >= 4 and len(ids(b"mail")) >= 1, seconds=30)
    assert len(ids(b"mail")) == 1
    assert len(set(ids(b"tick"))) == len(ids(b"tick"))
    shown = copy.call("GET", HOLD).json
    # A firing is sent up to a second ahead, so the backup may have one as a message.
    assert (shown["held"], shown["partial"]) == (True, False)
    assert 1 <= shown["due"] == shown["pushes"] <= 3
    assert shown["firings"] >= 2
    assert "restored from a backup of" in shown["note"]
    assert copy.call("GET", "/v1/topics/hooks/messages").json["messages"]
    assert "messages are due" in delaylog("resume", "--dry-run", "--url", copy.url)
    assert copy.call("GET", HOLD).json["held"]

    original.terminate()
    assert original.wait() == 0
    before = set(ids(b"tick"))
    assert "released" in delaylog("resume", "--url", copy.url)
    await_that(lambda: len(ids(b"mail")) == 2, seconds=30)
    assert len(set(ids(b"mail"))) == 1
    await_that(lambda: len(set(ids(b"tick")) - before) >= 2, seconds=30)
    again = [each for each in ids(b"tick") if ids(b"tick").count(each) == 2]
    assert set(again) & before
    original.start()


def test_pushes_in_flight_end_and_no_other_begins(
    sound_broker: Callable[..., Any], sink: Sink
) -> None:
    """A receiver that is being asked when the hold begins answers, and its message is acked."""
    broker = sound_broker(*pushing(sink))
    sink.delay_s = 1.0
    target = {"url": of_port(sink), "concurrency": 2}
    broker.call("PUT", "/v1/topics/p/groups/default/target", target)
    for n in range(6):
        broker.post("/v1/topics/p/messages", {"body": f"{n}"})
    await_that(lambda: len(sink.got) >= 2, seconds=20)
    assert broker.call("PUT", HOLD).json["held"]
    pushed = len(sink.got)
    await_that(lambda: broker.counts("p")["acked"] == pushed, seconds=20)
    # As long as another attempt would have taken, and the looks at targets.
    time.sleep(1.5)
    assert len(sink.got) == pushed
    assert broker.counts("p")["leased"] == 0
    shown = broker.call("GET", HOLD).json
    assert (shown["due"], shown["pushes"]) == (6 - pushed, 6 - pushed)
    broker.call("DELETE", HOLD)
    await_that(lambda: broker.counts("p")["acked"] == 6, seconds=20)
    assert len({headers["webhook-id"] for headers, _ in sink.got}) == len(sink.got) == 6


def test_everything_else_works_while_it_is_held(
    sound_broker: Callable[..., Any], restored: Callable[[Any], Path]
) -> None:
    original = sound_broker()
    original.post("/v1/topics/t/messages", {"id": "a", "body": "x"})
    copy = sound_broker(folder=restored(original))
    topic = "/v1/topics/t"
    refused = copy.call("POST", f"{topic}/receive", {"wait_ms": 20_000})
    assert (refused.status, refused.json["code"]) == (503, "held")
    assert "delaylog resume" in refused.json["detail"]
    copy.post(f"{topic}/messages", {"id": "b", "body": "y"})

    def peeked() -> set[str]:
        return {each["id"] for each in copy.post(f"{topic}/peek", {"max": 9})["messages"]}

    await_that(lambda: peeked() == {"a", "b"}, lambda: str(peeked()), seconds=10)
    assert copy.call("GET", f"{topic}/messages/a").json["state"] == "ready"
    assert copy.call("DELETE", f"{topic}/messages/b").json["result"] == "done"
    assert copy.call("PATCH", topic, {"max_retry": 3}).status == 200
    assert copy.call("GET", "/readyz").json["status"] == "held"
    assert b"delaylog_held 1.0" in copy.call("GET", "/metrics").body
    assert copy.call("GET", f"{topic}/stats").json["bounded_by"] == "held"
    assert copy.call("GET", "/ui/").status == 200
    assert copy.call("DELETE", HOLD).json["result"] == "done"
    assert copy.call("GET", "/readyz").json["status"] == "ready"
    assert [each["id"] for each in copy.post(f"{topic}/receive")["messages"]] == ["a"]
    waits = copy.call("GET", f"{topic}/messages/a?life=true").json["waits"]
    assert "held" in {each["cause"] for each in waits}


REFUSED = {
    "receive": ("POST", "/v1/topics/t/receive", {}),
    "receive of a topic that nobody made": ("POST", "/v1/topics/none/receive", {"wait_ms": 9_000}),
    "receive by id": ("POST", "/v1/topics/t/receive", {"ids": ["a"]}),
    "ack and receive": ("POST", "/v1/topics/t/ack_and_receive", {"receipts": []}),
    "camellia": ("POST", "/camellia/delayQueue/pullMsg?topic=t&batch=1", None),
    "a claim": ("POST", "/v1/topics/t/claims/c", {}),
    "a stream": ("GET", "/v1/topics/t/groups/default/stream", None),
}


@pytest.fixture(scope="module")
def held(start_broker: Callable[..., Any]) -> Any:
    """A broker that was started with --hold, with a message and Redis clients."""
    broker = start_broker("--hold", "--resp", "127.0.0.1:0")
    broker.post("/v1/topics/t/messages", {"id": "a", "body": "x"})
    return broker


@pytest.mark.parametrize("what", REFUSED)
def test_every_way_to_get_messages_is_refused(held: Any, what: str) -> None:
    method, path, body = REFUSED[what]
    began = time.monotonic()
    answer = held.call(method, path, body, {"Accept": "text/event-stream"} if not body else {})
    if what == "camellia":
        assert answer.json["code"] == 500, answer
        assert "delaylog resume" in answer.json["msg"]
    else:
        assert (answer.status, answer.json["code"]) == (503, "held"), answer
    assert time.monotonic() - began < 5
    assert held.counts("t")["leased"] == 0
    assert held.counts("none") is None


def redis(broker: Any, *words: str) -> bytes:
    """The reply to one Redis command."""
    port = int(broker.ready_line.split("resp=")[1].split()[0].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        wire = f"*{len(words)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in words)
        sock.sendall(wire.encode())
        return sock.recv(65_536)


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        (("DL.RECEIVE", "t", "1"), b"-HELD "),
        (("DL.RECEIVE", "t", "1", "WAIT", "20000"), b"-HELD "),
        (("DL.SEND", "u", "0", "x"), b"$17"),
        (("BLPOP", "l", "20"), b"-LOADING "),
        (("BRPOPLPUSH", "l", "m", "20"), b"-LOADING "),
        (("LPOP", "l"), b"-LOADING "),
        (("LPUSH", "l", "x"), b"-LOADING "),
        (("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"), b"-LOADING "),
        (("EVAL", "return redis.call('SET', 'k', 'v')", "0"), b"-"),
        (("GET", "k"), b"$-1"),
        (("LLEN", "l"), b":0"),
        (("PING",), b"+PONG"),
    ],
)
def test_redis_commands_that_change_keys_are_refused(
    held: Any, words: tuple[str, ...], reply: bytes
) -> None:
    got = redis(held, *words)
    assert got.startswith(reply), got
    assert b"held" in got or not reply.startswith(b"-")


def test_calls_that_wait_end_when_a_hold_begins(sound_broker: Callable[..., Any]) -> None:
    """Also held twice and released twice: the second call says that it changed nothing."""
    broker = sound_broker("--resp", "127.0.0.1:0")
    waits = broker.later("POST", "/v1/topics/t/receive", {"wait_ms": 20_000})
    broker.await_waiting(1)
    held = broker.call("PUT", HOLD, {"note": "a drill"}).json
    assert (held["held"], held["note"], held["result"]) == (True, "a drill", "done")
    answer = waits.result(5)
    assert (answer.status, answer.json["code"]) == (503, "held")
    again = broker.call("PUT", HOLD).json
    assert (again["since_ms"], again["note"], again["result"]) == (
        held["since_ms"],
        "a drill",
        "already",
    )
    assert [broker.call("DELETE", HOLD).json["result"] for _ in range(2)] == ["done", "already"]
    broker.post("/v1/topics/t/messages", {"body": "x"})
    assert len(broker.post("/v1/topics/t/receive", {"wait_ms": 5_000})["messages"]) == 1


def test_streams_and_blocked_redis_clients_end_when_a_hold_begins(
    sound_broker: Callable[..., Any],
) -> None:
    broker = sound_broker("--resp", "127.0.0.1:0")
    broker.call("PUT", "/v1/topics/t", {})
    with broker.connect() as stream, ThreadPoolExecutor(2) as pool:
        stream.sendall(
            b"GET /v1/topics/t/groups/default/stream HTTP/1.1\r\nHost: localhost\r\n"
            b"Accept: text/event-stream\r\n\r\n"
        )
        blocked = pool.submit(redis, broker, "BLPOP", "l", "20")
        waits = pool.submit(redis, broker, "DL.RECEIVE", "t", "1", "WAIT", "20000")
        broker.await_waiting(2)
        await_that(lambda: b"blocked_clients 2" in b"".join(infos(broker)), seconds=10)
        assert broker.call("PUT", HOLD).status == 200
        assert blocked.result(5).startswith(b"-LOADING ")
        assert waits.result(5).startswith(b"-HELD ")
        got = b""
        while b'"held"' not in got:
            part = stream.recv(65_536)
            assert part, got
            got += part
    broker.call("DELETE", HOLD)


def infos(broker: Any) -> list[bytes]:
    """What INFO says of clients."""
    return [line.replace(b":", b" ") for line in redis(broker, "INFO", "clients").splitlines()]


def test_the_sdk_says_that_the_broker_is_held(sound_broker: Callable[..., Any]) -> None:
    broker = sound_broker()
    with Client(broker.url) as client:
        calls = client.broker()
        client.send("t", "x")
        assert calls.held()["held"] is False
        calls.hold("a drill")
        assert calls.held()["due"] == 1
        with pytest.raises(Held, match="delaylog resume"):
            client.receive("t", wait=timedelta(seconds=20))
        assert calls.release_hold()["result"] == "done"
        assert [message.body for message in client.receive("t")] == [b"x"]


def test_a_copied_folder_is_held_by_an_option(
    start_broker: Callable[..., Any], tmp_path: Path
) -> None:
    """The hold survives kills, the option only begins it; --release-hold ends it."""
    first = start_broker()
    first.post("/v1/topics/t/messages", {"body": "x"})
    first.crash()
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(first.data_dir, copy / "data")
    broker = start_broker("--hold", folder=copy)
    assert not (copy / "data" / "held").exists()
    seen = []
    for options in ([], ["--release-hold"], []):
        broker.crash()
        broker._options = options
        broker.start()
        released = broker.call("POST", "/v1/topics/t/receive", {"lease_ms": 1}).status == 200
        assert released == (broker.call("GET", HOLD).json["held"] is False)
        seen.append(released)
    assert seen == [False, True, True]


def test_a_kill_before_the_order_is_in_the_log(
    start_broker: Callable[..., Any], restored: Callable[[Any], Path]
) -> None:
    """The order is in the folder until the log has it; afterwards it does not come back."""
    original = start_broker()
    original.post("/v1/topics/t/messages", {"body": "x"})
    folder = restored(original)
    order = (folder / "data" / "held").read_bytes()
    copy = start_broker(folder=folder)
    assert copy.call("GET", HOLD).json["held"]
    copy.crash()
    # As if it had been killed before the file was deleted: the log is newer than the order.
    (folder / "data" / "held").write_bytes(order)
    copy.start()
    assert copy.call("GET", HOLD).json["held"]
    assert copy.call("DELETE", HOLD).status == 200
    copy.crash()
    (folder / "data" / "held").write_bytes(order)
    copy.start()
    assert copy.call("GET", HOLD).json["held"] is False
    assert not (folder / "data" / "held").exists()


def test_the_log_says_so(start_broker: Callable[..., Any]) -> None:
    broker = start_broker("--hold")

    def told() -> list[dict[str, Any]]:
        return [line for line in broker.logs() if "this broker is held" in line["message"]]

    await_that(lambda: len(told()) == 1, seconds=10)
    assert "--release-hold" in json.dumps(told()[0])

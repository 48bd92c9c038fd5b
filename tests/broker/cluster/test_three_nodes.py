"""What clients and operators meet at three real nodes: who answers, who sends them on, and how.

The nodes are shared, so a test begins by asking who leads; whoever stops a node lets it go on.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import msgpack
import pytest

from delaylog.broker.cli.main import main
from delaylog.broker.host.watch.metrics_table import METRICS
from delaylog.client import AsyncPlainClient
from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.log_reader import scan_segment, segment_bases, segment_name
from tests.broker.cluster.three_nodes import NAMES, NODES, Answer, ThreeNodes, steady

BULK = "application/vnd.delaylog.batch"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FAR_MS = 3_600_000
READS = (
    "/v1/topics",
    "/v1/topics/{t}",
    "/v1/topics/{t}/stats",
    "/v1/topics/{t}/forecast",
    "/v1/topics/{t}/messages",
    "/v1/topics/{t}/messages?state=waiting,ready&bodies=true",
    "/v1/topics/{t}/messages/one",
    "/v1/topics/{t}/messages/one?life=true",
    "/v1/topics/{t}/dead",
    "/v1/topics/{t}/groups",
    "/v1/topics/{t}/groups/default",
    "/v1/jobs",
    "/v1/transactions",
    "/v1/clock",
)
CHANGES = (
    ("POST", "/v1/topics/{t}/messages?acks=all", {"body": "x"}),
    ("POST", "/v1/topics/{t}/receive", {"max": 1}),
    ("POST", "/v1/topics/{t}/peek", {}),
    ("POST", "/v1/topics/{t}/ack", {"receipts": []}),
    ("POST", "/v1/topics/{t}/messages:cancel", {"ids": ["one"]}),
    ("PATCH", "/v1/topics/{t}/messages/one", {"delay_ms": 0}),
    ("DELETE", "/v1/topics/{t}/messages/one?force=true", None),
    ("PUT", "/v1/topics/{t}", {"order": "priority"}),
    ("DELETE", "/v1/topics/{t}?force=true", None),
    ("PUT", "/v1/topics/{t}/groups/g", {}),
    ("POST", "/v1/topics/{t}/purge", {}),
    ("POST", "/v1/topics/{t}/pause", {}),
    ("POST", "/v1/clock", {"accept": True}),
    ("DELETE", "/v1/jobs/j1", None),
    ("POST", "/v1/transactions", {}),
    ("POST", "/v1/topics/{t}/claims/c", {}),
    ("GET", "/v1/topics/{t}/claims/c", None),
    ("GET", "/v1/topics/{t}/claims/c/rows", None),
    ("POST", "/v1/topics/{t}/claims/c/ack", {}),
)


def add(path: str, word: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}{word}"


def seed(three: ThreeNodes) -> str:
    """A new topic with a message that waits and one that is due, on every node."""
    topic = three.fresh("seeded")
    for body in ({"body": "x", "id": "one", "delay_ms": FAR_MS}, {"body": "y", "id": "two"}):
        key = {"Idempotency-Key": topic + body["id"]}
        answer = three.on_leader("POST", f"/v1/topics/{topic}/messages", body, key)
        assert answer.status == 200, answer
    three.caught_up()
    return topic


def changes_since(three: ThreeNodes, node: int, position: int) -> list[FrameKind]:
    """What was appended to a node's log."""
    folder = f"{three.data_dir(node)}/log"
    fs = OsFileSystem()
    base = max(each for each in segment_bases(fs, folder) if each <= position)
    with closing(fs.open(f"{folder}/{segment_name(base)}")) as file:
        return [FrameKind(each.header.kind) for each in scan_segment(file, base, position)]


@contextmanager
def stopped(three: ThreeNodes, *nodes: int) -> Iterator[None]:
    """Nodes that do nothing for a while, as if their machine hung."""
    for node in nodes:
        three.signal(node, signal.SIGSTOP)
    try:
        yield
    finally:
        for node in nodes:
            three.signal(node, signal.SIGCONT)


# --------------------------------------------------------------------------- reads and redirects


@steady
def test_a_follower_sends_everybody_to_the_leader(three: ThreeNodes) -> None:
    """307 with the leader's address, path and query kept, whatever is called; nothing is done."""
    topic = seed(three)
    (follower, _), leader = three.followers(), three.leader()
    end = three.status(leader)["log_end"]
    calls = [*CHANGES, *(("GET", path, None) for path in READS)]
    calls += [("GET", add(path, "read=leader"), None) for path in READS]
    for method, template, body in calls:
        path = template.replace("{t}", topic)
        answer = three.call(follower, method, path, body)
        assert (answer.status, answer.headers.get("Location")) == (307, three.url(leader) + path)
    assert not changes_since(three, leader, end)


@steady
def test_a_follower_reads_what_it_has_applied(three: ThreeNodes) -> None:
    """`read=local` is answered by every node alike, at once, and appends nothing anywhere."""
    topic = seed(three)
    followers, leader = three.followers(), three.leader()
    ends = {node: three.status(node)["log_end"] for node in NODES}
    for template in READS:
        path = add(template.replace("{t}", topic), "read=local")
        answers = {node: three.call(node, "GET", path) for node in (leader, *followers)}
        assert {answer.status for answer in answers.values()} == {200}, (path, answers)
    shown = three.call(followers[0], "GET", f"/v1/topics/{topic}/messages/one?read=local").json
    assert (shown["body"], shown["state"]) == ("x", "waiting")
    listed = three.call(followers[1], "GET", f"/v1/topics/{topic}/messages?read=local").json
    assert [each["id"] for each in listed["messages"]] == ["two", "one"]
    assert not [change for node in NODES for change in changes_since(three, node, ends[node])]


@steady
@pytest.mark.parametrize("word", ["read=all", "read=", "read=local&read=x", "red=local"])
def test_unknown_words_are_refused_everywhere(three: ThreeNodes, word: str) -> None:
    """Also by who would have sent the caller on."""
    followers = three.followers()
    for node in (three.leader(), followers[0]):
        answer = three.call(node, "GET", f"/v1/topics?{word}")
        if word.startswith("red") and node == followers[0]:
            assert answer.status == 307, "the leader will say so"
            continue
        assert answer.status == 400
        assert answer.json.get("field", "read") == "read"


@steady
def test_what_every_node_says_for_itself(three: ThreeNodes) -> None:
    leader, followers = three.leader(), three.followers()
    for node in NODES:
        for path in ("/", "/healthz", "/metrics", "/openapi.json", "/v1/cluster"):
            assert three.call(node, "GET", path).status == 200
        ready = three.call(node, "GET", "/readyz").json
        assert ready["role"] == ("leader" if node == leader else "follower")
        assert ready["leader"] == three.url(leader)
        for path in ("/camellia/metrics", "/camellia/health/status", "/camellia/health/check"):
            assert three.call(node, "GET", path).status == 200
    assert len(followers) == 2


# --------------------------------------------------------------------------- acks


def bulk(three: ThreeNodes, node: int, path: str, rows: int = 2) -> Answer:
    columns = {"n": rows, "delay_ms": FAR_MS, "body_size": 1, "bodies": b"a" * rows}
    headers = {"Content-Type": BULK, "Accept": BULK}
    return three.call(node, "POST", path, msgpack.packb({"v": 1, **columns}), headers)


@steady
def test_acks(three: ThreeNodes) -> None:
    """Each form of a send takes each word, and refuses another one by its name."""
    leader, topic = three.leader(), three.fresh("acks")
    message = {"body": "x", "delay_ms": FAR_MS}
    for acks, status in (("leader", 200), ("quorum", 200), ("all", 200), ("most", 400), ("", 400)):
        path = f"/v1/topics/{topic}/messages?acks={acks}"
        answers = [
            three.call(leader, "POST", path, message),
            three.call(leader, "POST", path, [message, message]),
            three.call(leader, "POST", path, message, {"Idempotency-Key": f"{topic}{acks}"}),
            bulk(three, leader, path),
        ]
        assert [answer.status for answer in answers] == [status] * 4, answers
        if status == 400:
            assert {answer.json["field"] for answer in answers} == {"acks"}
    assert three.call(leader, "GET", f"/v1/topics/{topic}").json["counts"]["waiting"] == 18


@steady
def test_acks_all_with_a_voter_away(three: ThreeNodes) -> None:
    """503 after 5 s that says who lacks it, while the rest goes on; later all have it."""
    leader, (away, _), topic = three.leader(), three.followers(), three.fresh("away")
    message = {"body": "x", "delay_ms": FAR_MS}
    path = f"/v1/topics/{topic}/messages?acks="
    with stopped(three, away), ThreadPoolExecutor(4) as pool:
        began = time.monotonic()
        waiting = [
            pool.submit(three.call, leader, "POST", path + "all", message),
            pool.submit(three.call, leader, "POST", path + "all", [message]),
            pool.submit(bulk, three, leader, path + "all"),
        ]
        for acks in ("leader", "quorum"):
            assert three.call(leader, "POST", path + acks, message).status == 200
        assert time.monotonic() - began < 4
        for answer in [each.result() for each in waiting]:
            problem = answer.json
            assert (answer.status, problem["code"]) == (503, "not_ready")
            assert (problem["missing"], problem["committed"]) == ([NAMES[away]], True)
            assert "Retry-After" in answer.headers
        assert 4.5 < time.monotonic() - began < 8
    # One that goes on after a stop may come to lead.
    assert three.on_leader("POST", path + "all", message).status == 200
    assert three.on_leader("GET", f"/v1/topics/{topic}").json["counts"]["waiting"] >= 7


# --------------------------------------------------------------------------- camellia


@steady
def test_camellia_is_carried_to_the_leader(three: ThreeNodes) -> None:
    """Its clients know no redirect: they get what the leader answers, a long poll too."""
    (first, second), topic = three.followers(), three.fresh("carried")
    base = "/camellia/delayQueue/"
    with ThreadPoolExecutor(1) as pool:
        poll = f"topic={topic}&longPollingTimeoutMillis=8000".encode()
        waiting = pool.submit(three.call, second, "POST", base + "longPollingMsg", poll, FORM)
        form = f"topic={topic}&msg=h%C3%A9&delayMillis=200".encode()
        sent = three.call(first, "POST", base + "sendMsg", form, FORM)
        assert (sent.status, sent.json["code"]) == (200, 200)
        (got,) = waiting.result().json["delayMsgList"]
    assert (got["msg"], got["msgId"]) == ("hé", sent.json["delayMsg"]["msgId"])
    ack = f"topic={topic}&msgId={got['msgId']}&ack=true".encode()
    assert three.call(first, "POST", base + "ackMsg", ack, FORM).json["code"] == 200
    infos = three.call(first, "GET", base + "getTopicInfoList").json
    assert topic in [info["topic"] for info in infos["data"]]
    missing = three.call(first, "POST", base + "sendMsg", b"topic=t", FORM)
    assert missing.status == 400, "as it would be at the leader"
    assert three.call(first, "POST", "/camellia/other", b"", FORM).status == 404


@steady
def test_a_carried_call_is_not_carried_again(three: ThreeNodes) -> None:
    """Two nodes that take each other for the leader would send it around for ever."""
    follower, _ = three.followers()
    path, headers = "/camellia/delayQueue/getMsg", {**FORM, "Delaylog-Carried": "1"}
    answer = three.call(follower, "POST", path, b"topic=t&msgId=i", headers)
    assert (answer.status, answer.json["code"]) == (200, 500)
    assert answer.json.keys() == {"code", "msg", "delayMsg"}


# --------------------------------------------------------------------------- status, handing over


def all_connected(three: ThreeNodes, leader: int) -> Any:
    """The leader's status once it has both others; a busy machine may keep one for a moment."""

    def found() -> Any:
        status = three.status(leader)
        return status if all(each["connected"] for each in status.get("members", ())) else None

    return three.until(found, "the leader misses a node")


@steady
def test_status(three: ThreeNodes) -> None:
    """The leader knows all; a follower says null for what it cannot know."""
    three.caught_up()
    leader, (follower, other) = three.leader(), three.followers()
    status = all_connected(three, leader)
    assert (status["cluster"], status["role"], status["name"]) == ("three", "leader", NAMES[leader])
    assert status["epoch"]["node"] == status["leader"]["node"] == leader
    assert status["log_end"] == status["applied"] >= status["commit"] > 0
    assert 0 <= status["gate_age_ms"] < 2_000
    assert [each["node"] for each in status["members"]] == list(NODES)
    for each in status["members"]:
        assert (each["connected"], each["voter"]) == (True, True)
        assert each["http"] == three.url(each["node"])
        assert each["peer"] == f"127.0.0.1:{three.peers[each['node']]}"
        assert each["lag_bytes"] == status["log_end"] - each["match"]
    seen = three.status(follower)
    assert (seen["role"], seen["gate_age_ms"]) == ("follower", None)
    assert seen["epoch"] == status["epoch"]
    assert seen["leader"]["http"] == three.url(leader)
    by_node = {each["node"]: each for each in seen["members"]}
    assert by_node[follower]["match"] == seen["durable"]
    assert (by_node[other]["match"], by_node[other]["voter"]) == (None, None)


@steady
def test_metrics(three: ThreeNodes) -> None:
    leader, (follower, other) = three.leader(), three.followers()
    # A leader measures how far followers are behind once it has had something for them.
    path = f"/v1/topics/{three.fresh('measured')}/messages?acks=all"
    assert three.on_leader("POST", path, {"body": "x", "delay_ms": FAR_MS}).status == 200
    all_connected(three, leader)
    lines = three.call(leader, "GET", "/metrics").body.decode().splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if line.startswith("delaylog_cluster"))
    assert samples['delaylog_cluster_role{role="leader"}'] == "1.0"
    assert samples["delaylog_cluster_connected_peers"] == "2.0"
    assert float(samples["delaylog_cluster_leaderships_total"]) >= 1
    assert float(samples["delaylog_cluster_gate_age_seconds"]) >= 0
    for node in (follower, other):
        assert f'delaylog_cluster_follower_lag_bytes{{node="{node}"}}' in samples
        assert float(samples[f'delaylog_cluster_follower_lag_seconds_count{{node="{node}"}}']) > 0
    assert 'delaylog_cluster_election_datagrams_refused_total{reason="unauthentic"}' in samples
    found = {line.split()[2] for line in lines if line.startswith("# TYPE delaylog_cluster")}
    rows = {name for name in METRICS if name.startswith("delaylog_cluster")}
    # The median of clocks is known only some seconds after the start.
    assert rows - found <= {"delaylog_cluster_own_clock_offset_seconds"}
    lines = three.call(follower, "GET", "/metrics").body.decode().splitlines()
    assert 'delaylog_cluster_role{role="follower"} 1.0' in lines
    assert not [line for line in lines if line.startswith("delaylog_cluster_gate_age_seconds ")]


@steady
def test_handing_over(three: ThreeNodes) -> None:
    """By name, by index and to whoever is fittest, each answered once the next one serves."""
    for by in ("name", "index", "digits", "nothing"):
        target, _ = three.followers()
        to = {"name": NAMES[target], "index": target, "digits": str(target)}.get(by)
        leader, answer = three.hand_over(to)
        found = answer.json
        assert found["node"] != leader
        assert to is None or found["node"] == target
        assert found["epoch"]["node"] == found["node"]
        assert 0 <= found["pause_ms"] < 2_000
        assert three.status(leader)["role"] == "follower"
        assert three.leader() == found["node"]


@steady
def test_handing_over_that_cannot_be(three: ThreeNodes) -> None:
    leader, (follower, _) = three.leader(), three.followers()
    path = "/v1/cluster/handover"
    for to, status, word in (
        ("nobody", 400, "alpha"),
        (9, 400, "gamma"),
        (True, 400, "integer or text"),
        (leader, 409, "leads already"),
    ):
        answer = three.call(leader, "POST", path, {"to": to})
        assert answer.status == status, answer
        assert word in answer.json["detail"]
    answer = three.call(follower, "POST", path, {})
    assert (answer.status, answer.json["leader"]) == (409, three.url(leader))
    assert three.call(leader, "POST", path, {"two": 1}).status == 400
    assert three.leader() == leader


def test_the_clock_of_a_cluster_is_not_set_back(three: ThreeNodes) -> None:
    answer = three.on_leader("POST", "/v1/clock", {"accept": True})
    assert (answer.status, answer.json["code"]) == (409, "conflict")
    assert "cluster" in answer.json["detail"]


@steady
def test_handing_over_under_load(three: ThreeNodes) -> None:
    """Senders and receivers that follow the leader lose and double nothing over four hand-overs."""
    stop, topic = threading.Event(), three.fresh("load")
    sent: dict[str, int] = {}
    got: list[str] = []

    async def sender(number: int) -> None:
        async with AsyncPlainClient(three.url(number)) as client:
            n = 0
            while not stop.is_set():
                body = f"{number}-{n}"
                answer = await client.send(topic, body, idempotency_key=f"{topic}:{body}")
                sent[body] = sent.get(body, 0) + (answer.result == "created")
                n += 1

    async def receiver() -> None:
        async with AsyncPlainClient(three.url(1)) as client:
            idle = 0
            while idle < 3:
                try:
                    found = await client.receive(
                        topic, max=100, wait=timedelta(seconds=0.3), lease=timedelta(minutes=1)
                    )
                except Exception:
                    await asyncio.sleep(0.05)
                    continue
                got.extend(message.body.decode() for message in found.messages)
                idle = 0 if found.messages or not stop.is_set() else idle + 1

    async def load() -> None:
        await asyncio.gather(*(sender(number) for number in NODES), receiver())

    worker = threading.Thread(target=lambda: asyncio.run(load()))
    assert three.on_leader("PUT", f"/v1/topics/{topic}", {}).status == 201
    epochs = -three.unplanned() - three.handed_over
    worker.start()
    pauses = []
    try:
        for _ in range(4):
            before = len(sent)
            time.sleep(0.3)
            three.until(lambda before=before: len(sent) > before, "nothing was sent")
            _, answer = three.hand_over()
            pauses.append(answer.json["pause_ms"])
    finally:
        stop.set()
        worker.join(30)
    assert not worker.is_alive()
    assert max(pauses) < 1_000, pauses
    assert set(sent.values()) == {1}
    assert len(got) == len(set(got))
    epochs += three.unplanned() + three.handed_over
    counts = three.on_leader("GET", f"/v1/topics/{topic}/stats").json["counts"]
    assert counts["leased"] == len(sent)
    assert set(got) == sent.keys(), f"{epochs} epochs began; none of the leases is lost"


def hands_over_a_running_job(three: ThreeNodes, blocks: int) -> bool:
    """Whether a job of so many blocks of rows still ran at the next leader; it ends there."""
    leader, rows = three.leader(), 100_000
    path = f"/v1/topics/{three.fresh('jobs')}/messages"
    for _ in range(blocks):
        assert bulk(three, leader, path, rows).status == 200
    began = three.call(leader, "POST", f"{path}:cancel", {"filter": {}})
    assert began.status == 202
    path = f"/v1/jobs/{began.json['job']}"

    def job() -> dict[str, Any]:
        answer = three.call(three.leader(), "GET", path)
        return dict(answer.json) if answer.status == 200 else {}

    three.until(lambda: job().get("done"), "it begins")
    three.hand_over()
    shown = three.until(job, "it is known")
    three.until(lambda: job().get("state") == "done", "it ends")
    assert three.until(job, "it is known")["done"] == blocks * rows
    return bool(shown["state"] == "running" and shown["done"] < blocks * rows)


@steady
def test_handing_over_while_a_job_runs(three: ThreeNodes) -> None:
    """The job pauses, or the log would never end where a successor could take it up; then it goes
    on at the next leader.

    A job may end before this process has its turn to ask for the hand-over.
    """
    ran_on = any(hands_over_a_running_job(three, blocks) for blocks in (2, 4, 8))
    assert ran_on, "it was too fast"


# --------------------------------------------------------------------------- the command line


@steady
def test_the_command_line(three: ThreeNodes, capsys: pytest.CaptureFixture[str]) -> None:
    """ReceiveRequest of a follower: it says what it knows, the rest comes from the leader."""

    def run(*words: str) -> tuple[int, str, str]:
        status = main([*words, "--url", three.url(follower)])
        return status, *capsys.readouterr()

    leader, (follower, _) = three.leader(), three.followers()
    status, out, _ = run("cluster", "status")
    assert status == 0
    assert f"leader    {leader} ({NAMES[leader]}) {three.url(leader)}\n" in out
    assert "role      follower\n" in out
    assert json.loads(run("cluster", "status", "--json")[1])["node"] == follower
    all_connected(three, leader)
    members = [json.loads(line) for line in run("cluster", "members", "--json")[1].splitlines()]
    assert [each["node"] for each in members if each["leads"]] == [leader]
    assert all(each["voter"] and each["match"] is not None for each in members)
    assert run("cluster", "members")[1].count("yes") == 9
    status, out, _ = run("send", "cli", "hello", "--json")
    assert (status, json.loads(out)["result"]) == (0, "created")
    status, out, _ = run("cluster", "handover", "--to", NAMES[follower], "--json")
    assert (status, json.loads(out)["node"]) == (0, follower)
    three.handed_over += 1
    status, out, err = run("cluster", "handover", "--to", "nobody")
    assert (status, out) == (1, "")
    assert "there is no member 'nobody'" in err
    status, out, err = run("clock", "--accept")
    assert (status, out) == (1, "")
    assert "409 conflict: a cluster's time cannot be set back" in err


# --------------------------------------------------------------------------- failures, last


def test_without_a_majority(three: ThreeNodes) -> None:
    """503 with Retry-After, and in camellia's own form; who reads what is there still may."""
    topic = seed(three)
    followers = three.followers()
    (left,) = {*NODES} - {*followers}
    with stopped(three, *followers):
        three.until(lambda: three.status(left).get("role") != "leader", "it steps down")
        three.until(lambda: three.status(left).get("leader") is None, "it knows no leader")
        for method, path, body in (
            ("POST", f"/v1/topics/{topic}/messages", {"body": "x"}),
            ("GET", f"/v1/topics/{topic}", None),
        ):
            answer = three.call(left, method, path, body)
            assert (answer.status, answer.json["code"]) == (503, "not_ready")
            assert answer.headers["Retry-After"] == "1"
            assert answer.json["begun"] is False
        form = f"topic={topic}&msg=x&delayMillis=0".encode()
        answer = three.call(left, "POST", "/camellia/delayQueue/sendMsg", form, FORM)
        assert (answer.status, answer.json["code"], answer.json["delayMsg"]) == (200, 500, None)
        # It misses its followers before it gives up the connections to them.
        three.until(
            lambda: "not connected" in three.call(left, "GET", "/readyz").json["detail"],
            "it keeps its connections",
        )
        ready = three.call(left, "GET", "/readyz")
        assert ready.status == 503
        assert "knows no leader" in ready.json["detail"]
        for template in READS:
            path = add(template.replace("{t}", topic), "read=local")
            answer = three.call(left, "GET", path)
            assert answer.status == 200, (path, answer)
        answer = three.call(left, "POST", "/v1/cluster/handover", {})
        assert (answer.status, answer.json.get("leader")) == (409, None)
    three.leader()


def test_a_blank_node_joins(three: ThreeNodes) -> None:
    """As a learner; the leader lets it in and begins a new epoch, in which it counts. Time goes on
    as ever: what lies far ahead is not handed out.
    """
    topic = seed(three)
    gone, _ = three.followers()
    before = three.unplanned()
    assert three.stop(gone) == [0]
    shutil.rmtree(three.data_dir(gone))
    three.start(gone)

    def counts() -> bool:
        members = three.status(three.leader()).get("members", ())
        by_node = {each["node"]: each["voter"] for each in members}
        return by_node.get(gone) is True and three.unplanned() > before

    three.until(counts, "it is let in")
    message, path = {"body": "x", "delay_ms": FAR_MS}, f"/v1/topics/{topic}"
    key = {"Idempotency-Key": f"{topic}three"}
    answer = three.on_leader("POST", f"{path}/messages?acks=all", message, key)
    assert answer.status == 200, answer
    found = three.on_leader("POST", f"{path}/receive", {"max": 10, "wait_ms": 5_000})
    assert [each["id"] for each in found.json["messages"]] == ["two"]
    assert abs(three.on_leader("GET", "/v1/clock").json["now_ms"] / 1000 - time.time()) < 5
    three.caught_up()
    listed = three.call(gone, "GET", f"{path}/messages?read=local").json
    assert len(listed["messages"]) == 3


def test_a_client_finds_the_next_leader(three: ThreeNodes) -> None:
    """Sends with producer and sequence go on over a kill of the leader, each done once."""

    async def scene() -> tuple[float, list[Any]]:
        leader = three.leader()
        async with AsyncPlainClient(three.url(leader)) as client:
            await client.cluster()
            answers = []
            longest = 0.0
            for n in range(20):
                if n == 10:
                    three.kill(leader)
                began = time.monotonic()
                answers.append(
                    await client.send_bulk(
                        "next", [b"x"], delay_ms=FAR_MS, producer="p", sequence=n
                    )
                )
                longest = max(longest, time.monotonic() - began)
            stats = await client.stats("next")
            assert stats["counts"]["waiting"] == 20
        three.start(leader)
        return longest, answers

    longest, answers = asyncio.run(scene())
    assert len(answers) == 20
    assert longest < 5
    three.leader()
    three.caught_up()

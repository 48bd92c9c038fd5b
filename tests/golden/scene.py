"""What a golden folder holds, and what a user sees of it.

`fill` makes the calls and runs in the release that the folder is made with; `view` runs in that
release (its result is stored beside the folder) and in every later one, which has to see the same.
Both use only calls that all releases have: when such a call changes its name, adapt it here and
leave the stored results alone. `shown_log` shows the frames of a folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from delaylog.broker.engine.access.commands import put_principal
from delaylog.broker.engine.access.grants import parse_grant
from delaylog.broker.engine.access.principals import Principal, Secret
from delaylog.broker.engine.deliver import claims
from delaylog.broker.engine.deliver.settlements import Receipts, ack
from delaylog.broker.engine.jobs.job_table import JobSpec
from delaylog.broker.engine.jobs.jobs import begin_job
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.model import MessageState
from delaylog.broker.engine.push.commands import drop_target, put_target
from delaylog.broker.engine.push.targets import Target
from delaylog.broker.engine.schedules.commands import put_schedule
from delaylog.broker.engine.topics import commands as topics
from delaylog.broker.engine.upkeep.archive import apply_archive
from delaylog.broker.keyspace.replies import encode
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.storage.layout import FrameKind
from delaylog.storage.log.frames import decode_level
from delaylog.storage.log.log_reader import frames_in
from delaylog.storage.log.payloads import SendDecision, frames_of, unpack
from delaylog.storage.messages.batch import decode_send
from delaylog.storage.messages.rows import place_rows
from delaylog.storage.runs.id_hash import IdHash
from tests.broker.cluster.three_nodes import ThreeNodes
from tests.broker.engine import claim_calls
from tests.broker.engine.keyspace_work import execute, snapshot
from tests.broker.engine.staging import Transactions

HOUR = 3_600_000
DAY = 24 * HOUR
GROUPS = ("audit", "mail")
TARGET = Target("https://example.com/", ("whsec_a",), "structured", 5, 6, 7.5)
STEPS_MS = (0, 5_000, 60_000, HOUR, 5 * HOUR, 2 * DAY, 40 * DAY, 400 * DAY)
"""When `view` looks for messages that have become ready, from the moment it opens the folder."""


def fill(host: Any, *, part: str) -> dict[str, Any]:
    """The calls of one part of a folder's life; returns what `view` has to be told of it."""
    return {"first": _first, "second": _second}[part](host)


def _first(host: Any) -> dict[str, Any]:
    engine = host.engine
    state = engine.state
    host.configure(
        backoff={"first_ms": 2_000, "max_ms": 60_000, "factor": 3.0, "jitter": 0.0},
        max_retry=4,
        order="priority",
        merge="replace",
        dead_expired=True,
    )
    for name in GROUPS:
        topics.put_group(state, host.topic, name, host.now_ms, ephemeral=name == "mail")
    # Ids of several sizes, every column, due times from now to next year.
    host.send(
        [b"near %d" % k for k in range(40)],
        delay=[k * 250 for k in range(40)],
        ids=[f"near-{k}" for k in range(40)],
        priority=np.array([k % 3 for k in range(40)]),
        tags=["red,blue" if k % 2 else "green" for k in range(40)],
    )
    host.send(
        [b"far %d" % k for k in range(40)],
        delay=[HOUR + k * 3 * HOUR for k in range(40)],
        ids=[f"{'far-' * (1 + k % 9)}{k}" for k in range(40)],
        ttl_ms=np.array([2 * DAY if k % 5 else -1 for k in range(40)]),
        max_retry=np.array([k % 4 for k in range(40)]),
        headers=[b"\x81\xa1a\xa1%d" % (k % 10) for k in range(40)],
    )
    host.send(3, delay=[DAY, 20 * DAY, 350 * DAY])
    host.send([b"keyed %d" % k for k in range(6)], delay=1_000, keys=["k1", "k2"] * 3)
    host.send([b"once"], producer="p", sequence=7, delay=HOUR)
    host.send([b"again"], ids=["far-0"], delay=6 * HOUR)
    host.cancel(["near-38", "near-39"])
    host.reschedule(["near-37"], host.now_ms + 2 * HOUR)
    host.advance(2_100)
    got = host.receive(4, lease=20_000)
    host.ack(got[:2])
    host.nack(got[2:3], delay=HOUR)
    host.receive(2, group="audit")
    # A message that is dead, and one that was replayed.
    for _ in range(2):
        host.send([b"bad"], ids=["bad"], max_retry=0)
        host.advance(10)
        bad = host.receive(1, chosen=["bad"])
        host.nack(bad, delay=0)
        host.advance(10)
        if host.state_of("bad") is MessageState.DEAD:
            host.replay(["bad"], host.now_ms + 3 * HOUR)
            host.cancel(["bad"])
    host.send([b"dead"], ids=["dead"], max_retry=0)
    host.nack(host.receive(1, chosen=["dead"]), delay=0)
    # A topic that is paused, one that was purged, one that is gone.
    host.send(3, topic="paused")
    topics.pause(state, engine.topic("paused"), host.now_ms, paused=True)
    host.send(5, topic="purged", delay=HOUR)
    purged = engine.topic("purged")
    topics.purge(state, purged, list(purged.groups.values()), host.now_ms, force=False)
    host.send([b"after the purge"], topic="purged", delay=2 * HOUR)
    host.send(2, topic="gone")
    topics.drop_topic(state, engine.topic("gone"), host.now_ms)
    host.send([b"claimed %d" % k for k in range(6)], topic="claims")
    host.turn()
    host.topic_name = "claims"
    claim_calls.make(host, "open", 3, lease=6 * HOUR)
    host.topic_name = "t"
    secret = Secret(b"d" * 32, host.now_ms)
    put_principal(state, Principal("shop", (parse_grant("send:t"),), (secret,)), host.now_ms)
    put_target(state, host.topic, host.topic.group("audit"), TARGET, host.now_ms)
    yearly, fired = {"interval_ms": 300 * DAY}, engine.make_topic("fired", host.now_ms)
    put_schedule(state, fired, "yearly", yearly, b"yearly", host.now_ms)
    work = Transactions(engine)
    work.begin("open", host.now_ms, DAY)
    work.stage("open", [b"staged 0", b"staged 1"], host.now_ms, topic="staged")
    work.begin("done", host.now_ms)
    work.stage("done", [b"published"], host.now_ms, topic="staged", number=0)
    work.commit("done", host.now_ms, (0, 0, 1))
    host.turn()
    work.publish(host.now_ms)
    execute(
        engine,
        host.now_ms,
        [b"SET", b"text", b"value"],
        [b"SET", b"late", b"gone later", b"PX", b"%d" % (300 * DAY)],
        [b"RPUSH", b"list", b"a", b"b", b"c"],
        [b"SADD", b"set", b"x", b"y"],
        [b"HSET", b"hash", b"f", b"1", b"g", b"2"],
        [b"ZADD", b"zset", b"1.5", b"one", b"2", b"two"],
        [b"XADD", b"stream", b"1-1", b"k", b"v"],
        [b"XGROUP", b"CREATE", b"stream", b"readers", b"0"],
        [b"PFADD", b"hll", b"a", b"b"],
        [b"SELECT", b"3"],
        [b"SET", b"elsewhere", b"three"],
    )
    host.turn()
    snapshot(engine, host.now_ms)
    execute(engine, host.now_ms, [b"INCR", b"counter"], [b"RPOP", b"list"])
    return {}


def _second(host: Any) -> dict[str, Any]:
    """What stands behind the checkpoint: a frame of each kind."""
    engine = host.engine
    state = engine.state
    host.send(
        [b"late %d" % k for k in range(20)],
        delay=[k * 1_000 for k in range(20)],
        ids=[f"late-{k}" for k in range(20)],
        keys=["k1", "k2"] * 10,
    )
    host.send([b"late far"], delay=90 * DAY, ids=["late-far"], producer="q", sequence=1)
    twice = {"interval_ms": 1_000, "count": 2}
    put_schedule(state, engine.topic("fired"), "twice", twice, b"fired", host.now_ms)
    host.advance(1_500)
    put_principal(state, Principal("late", (parse_grant("receive:t"),)), host.now_ms)
    put_target(state, host.topic, host.topic.group("audit"), TARGET, host.now_ms)
    drop_target(state, host.topic, host.topic.group("audit"), host.now_ms)
    put_target(state, host.topic, host.topic.group("audit"), TARGET, host.now_ms)
    engine.hold("a look", host.now_ms)
    engine.release_hold(host.now_ms)
    leased = host.receive(3, lease=12 * HOUR)
    host.nack(leased[:1], delay=2 * HOUR)
    host.cancel(["late-19"])
    host.reschedule(["late-18"], host.now_ms + 30 * HOUR)
    topics.put_group(state, host.topic, "later", host.now_ms)
    host.send([b"for all three"], delay=4 * HOUR, ids=["for-all"])
    host.jump_ahead(50)
    # Hours that ended long ago: what is released decides nothing here, but its frame is there.
    released = {"through": host.now_ms // HOUR - 2}
    state.append(FrameKind.ARCHIVE, [msgpack.packb(released)], host.now_ms)
    apply_archive(state, released)
    begin_job(state, host.topic, JobSpec("cancel", MessageFilter(tag=b"green")), host.now_ms)
    work = Transactions(engine)
    work.stage("open", [b"staged 2"], host.now_ms, topic="staged", number=1)
    host.topic_name = "claims"
    claim_calls.make(host, "second", 2, lease=6 * HOUR)
    host.topic_name = "t"
    execute(
        engine, host.now_ms, [b"SET", b"text", b"newer"], [b"DEL", b"set"], [b"INCR", b"counter"]
    )
    host.sync()
    return {"leased": [[one.lease, one.origin] for one in leased[1:]]}


def give_addresses(nodes: ThreeNodes) -> None:
    """Have three nodes connect at addresses that are always the same: their log has them."""
    text = nodes.config.read_text()
    for node, port in nodes.peers.items():
        text = text.replace(f'peer = "127.0.0.1:{port}"', f'peer = "127.77.0.{node}:7711"')
    nodes.config.write_text(text)


# --------------------------------------------------------------------------- what a user sees


def view(host: Any, told: dict[str, Any]) -> dict[str, Any]:
    """Everything a user can ask for, and then every message as it is delivered."""
    engine = host.engine
    seen: dict[str, Any] = {
        "topics": {
            f"{ns}/{name}": _topic(one) for (ns, name), one in sorted(engine.state.topics.items())
        },
        "states": _states(host),
        "keyspace": _keyspace(host),
        "jobs": [[one.action, one.topic] for one in engine.state.jobs.running()],
        "principals": {
            name: [[*sorted(each.rights), each.topic] for each in one.grants]
            for name, one in sorted(engine.state.access.principals.items())
        },
        "targets": [[*key, one.url] for key, one in sorted(engine.state.targets.targets.items())],
        "schedules": _schedules(host),
        "repeated": _repeated(host),
        "claims": _seen_claims(host),
        "transaction": _transaction(host),
        "settled": _settled(host, told),
    }
    engine.run_inline(engine.jobs.work(lambda: host.now_ms))
    host.turn()
    seen["deliveries"] = _deliveries(host)
    return seen


def _schedules(host: Any) -> dict[str, Any]:
    table, topic = host.engine.state.schedules, host.engine.topic("fired").number
    found = [table.find(topic, name) for name in ("yearly", "twice")]
    return {one.name: [one.number, one.paused, one.progress.due_ms] for one in found}


def _topic(topic: Any) -> dict[str, Any]:
    return {
        "settings": topic.settings.as_dict(),
        "paused": topic.paused,
        "sent": topic.sent,
        "groups": {
            group.name: {
                "living": group.counts.living,
                "leased": group.counts.leased,
                "acked": group.counts.acked,
                "dead": group.counts.dead,
                "cancelled": group.counts.cancelled,
                "replaced": group.counts.replaced,
                "ephemeral": group.ephemeral,
                "hours": len([n for n in group.hours.values() if n]),
            }
            for group in topic.groups.values()
        },
    }


def _ids() -> list[str]:
    ids = [f"near-{k}" for k in range(40)] + [f"{'far-' * (1 + k % 9)}{k}" for k in range(40)]
    return [*ids, *(f"late-{k}" for k in range(20)), "late-far", "for-all", "bad", "dead", "none"]


def _states(host: Any) -> dict[str, Any]:
    ids = _ids()
    found = host.find(ids)
    return {
        name: one
        and [
            one.state.name,
            int(one.row["deliver_at"]),
            int(one.entry["attempts"]),
        ]
        for name, one in zip(ids, found, strict=True)
    }


def _repeated(host: Any) -> list[Any]:
    """A producer's send that is repeated gets its first answer."""
    before = host.topic.sent
    refs = host.send([b"once"], producer="p", sequence=7, delay=HOUR).refs.tolist()
    return [refs, host.topic.sent - before]


_READERS = {
    b"string": [b"GET"],
    b"list": [b"LRANGE", b"0", b"-1"],
    b"set": [b"SMEMBERS"],
    b"hash": [b"HGETALL"],
    b"zset": [b"ZRANGE", b"0", b"-1", b"WITHSCORES"],
    b"stream": [b"XRANGE", b"-", b"+"],
}


def _keyspace(host: Any) -> dict[str, Any]:
    executor = Executor(host.engine.state.keyspace)
    session = executor.connect(host.now_ms)
    executor.begin(host.now_ms)

    def run(*argv: bytes) -> Any:
        return executor.execute(session, list(argv))

    out: dict[str, Any] = {}
    for number in (0, 3):
        run(b"SELECT", b"%d" % number)
        for key in sorted(run(b"KEYS", b"*")):
            kind = bytes(run(b"TYPE", key))
            first, *rest = _READERS[kind]
            lines = encode(run(first, key, *rest), 2).decode("latin-1").split("\r\n")
            ends = session.database.expires.get(key, -1)
            out[f"{number}:{key.decode()}"] = [ends, *(lines if kind != b"set" else sorted(lines))]
    return out


def _seen_claims(host: Any) -> Any:
    host.topic_name = "claims"
    out = {}
    for name in ("open", "second"):
        topic = host.topic
        claim = claims.find_claim(host.engine.state, topic, topic.default, name)
        out[name] = (
            None
            if claim is None
            else [claim.state, [b.decode() for b in claim_calls.bodies(host, claim)]]
        )
    host.topic_name = "t"
    return out


def _transaction(host: Any) -> Any:
    """The open one takes its commit."""
    work = Transactions(host.engine)
    work.commit("open", host.now_ms, (0, 0, 3))
    host.turn()
    work.publish(host.now_ms)
    host.turn()
    topic = host.engine.topic("staged")
    return [topic.sent, topic.default.counts.living]


def _settled(host: Any, told: dict[str, Any]) -> int:
    """A lease given before still settles."""
    done = 0
    for lease, origin in told["leased"]:
        refs = np.array([origin], np.int64)
        done += ack(host.engine.state, host.topic, Receipts(lease, refs), host.now_ms).done
    host.turn()
    return done


def _deliveries(host: Any) -> dict[str, Any]:
    """By topic and group what is delivered in each step of time, each message once."""
    out: dict[str, Any] = {}
    host.topic_name = "t"
    opened = host.now_ms
    for step in STEPS_MS:
        host.advance(opened + step - host.now_ms)
        for name in ("t", "purged", "paused", "staged", "fired"):
            host.topic_name = name
            for group in sorted(g.name for g in host.topic.groups.values()):
                got = []
                while part := host.receive(500, group=group):
                    got += [
                        [one.id, one.body.decode(), one.attempts, one.deliver_at_ms - opened]
                        for one in part
                    ]
                    host.ack(part)
                if got:
                    out[f"{name}/{group} +{step}"] = sorted(got)
    host.topic_name = "t"
    return out


# --------------------------------------------------------------------------- what a log holds


def shown_log(folder: Path) -> Iterator[list[Any]]:
    """Each frame of a log: position, kind, digest of the payload, time; and the rows of a SEND."""
    hashes = IdHash(b"")
    for path in sorted((folder / "log").glob("*.log")):
        for frame in frames_in(path.read_bytes(), int(path.stem)):
            if frame.header.kind == FrameKind.LEVEL:
                hashes = IdHash(decode_level(frame.payload)[1])
            yield _shown(frame, hashes)


def _shown(frame: Any, hashes: IdHash) -> list[Any]:
    header = frame.header
    kind = FrameKind(header.kind)
    digest = hashlib.sha256(bytes(frame.payload)).hexdigest()[:16]
    shown: list[Any] = [header.position, kind.name, digest, header.leader_time_ms]
    if kind is FrameKind.SEND:
        shown.append(_rows(frame, hashes))
    elif kind is FrameKind.MULTI:
        shown += [_shown(inner, hashes) for inner in frames_of(frame)]
    return shown


def _rows(frame: Any, hashes: IdHash) -> list[list[Any]]:
    """What a SEND frame makes: one list a row, without what its place in the file decides."""
    head, wire = unpack(frame.payload)
    batch = decode_send(wire, rows_max=2**31)
    decision, header = SendDecision.decode(head), frame.header
    placed = place_rows(batch, decision, header.leader_time_ms, header.position, hashes)
    record = hashlib.sha256(bytes(placed.data)).hexdigest()[:16]
    names = [name for name in placed.rows.dtype.names or () if "global_index" not in name]
    return [record, placed.hours, placed.starts] + [
        [int(row[name]) for name in names] for row in placed.rows
    ]

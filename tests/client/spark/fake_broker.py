"""A small broker of the calls that Spark's side uses, in a thread of the test.

It keeps what it takes in memory and follows the contract of transactions, direct sends and claims
strictly: whatever the real broker refuses, this one does. A test gives it faults, as every
misbehaving server.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from urllib.parse import unquote
from zlib import crc32

import pyarrow as pa

from tests.client.spark.misbehaving_server import Call, MisbehavingServer, Reply

ARROW_TYPE = "application/vnd.apache.arrow.stream"
BODY_BYTES_MAX = 4 * 1024 * 1024
COLUMNS = {
    "value": pa.binary(),
    "deliver_at": pa.timestamp("us", tz="UTC"),
    "id": pa.string(),
    "key": pa.string(),
    "tags": pa.list_(pa.string()),
    "priority": pa.int32(),
    "ttl_ms": pa.int64(),
    "max_retry": pa.int32(),
    "merge": pa.string(),
    "backoff": pa.struct([("first_ms", pa.int64()), ("factor", pa.float64())]),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


class Refusal(Exception):
    """A problem document."""

    def __init__(self, status: int, code: str, detail: str, **members: Any) -> None:
        self.status = status
        self.document = {"code": code, "status": status, "detail": detail, **members}


@dataclass
class FakeTransaction:
    state: str = "open"
    rows: int = 0
    parts: dict[tuple[str, int, int, int], tuple[tuple[str, str], int, Any]] = field(
        default_factory=dict
    )


@dataclass
class FakeClaim:
    rows: list[dict[str, Any]]
    state: str = "open"
    extended: int = 0


class FakeBroker(MisbehavingServer):
    """Use as `with FakeBroker() as broker:`; its address is `broker.url`."""

    def __init__(self, *, token: str | None = None) -> None:
        super().__init__()
        self.token = token
        self.transactions: dict[str, FakeTransaction] = {}
        self.sent: dict[tuple[str, str], list[Any]] = {}
        """Tables that are visible, by namespace and topic."""
        self.keys: set[str] = set()
        self.ready: dict[str, list[dict[str, Any]]] = {}
        self.claims: dict[tuple[str, str], FakeClaim] = {}
        self.lacks: set[tuple[str, str | None]] = set()
        """Rights that the caller has not, with the topic, or None for any topic."""
        self.acked: list[dict[str, Any]] = []
        self.removed: set[str] = set()
        """Ids of messages of claims that were settled one by one."""
        self.members: list[dict[str, Any]] = []
        self.kept = 0
        """How many rows of a transaction count as kept when a test asks for its state."""
        self.unpublished = 0
        """How many committed rows of a transaction are not published yet."""
        self.discarded = 0
        self.deduplicated = 0

    # What tests look at

    def rows(self, topic: str, namespace: str = "default") -> list[dict[str, Any]]:
        """What consumers would see."""
        with self._lock:
            tables = list(self.sent.get((namespace, topic), ()))
        return [row for table in tables for row in table.to_pylist()]

    def ids(self, topic: str) -> list[str]:
        return [row["id"] for row in self.rows(topic)]

    def expire(self, identity: str) -> None:
        self.transactions[identity].state = "expired"

    def end_claims(self, state: str = "expired") -> None:
        """End the open ones in this state; "unknown": their topic or group was dropped."""
        with self._lock:
            for (topic, name), claim in list(self.claims.items()):
                if claim.state == "open":
                    claim.state = state
                    if state in ("expired", "released"):
                        self.ready.setdefault(topic, [])[:0] = claim.rows
                    elif state == "unknown":
                        del self.claims[topic, name]

    # What it answers

    def carry_out(self, call: Call) -> Reply:
        with self._lock:
            try:
                status, found = 200, self.answer(call)
            except Refusal as refusal:
                status, found = refusal.status, refusal.document
        return Reply(status, found if isinstance(found, bytes) else json.dumps(found).encode())

    def answer(self, call: Call) -> dict[str, Any] | bytes:
        if self.token is not None and call.headers.get("Authorization") != f"Bearer {self.token}":
            said = call.headers.get("Authorization", "none")
            raise Refusal(401, "unauthorized", f"a token is needed, not {said}")
        parts = [unquote(part) for part in call.path.split("/")[1:]]
        match [call.method, *parts]:
            case ["GET", "v1", "clock"]:
                return {"now_ms": time.time_ns() // 1_000_000}
            case ["GET", "v1", "session"]:
                return self._session(call.query)
            case ["GET", "v1", "cluster"]:
                return {"members": self.members}
            case ["POST", "v1", "transactions"]:
                return self._begin(call.shape)
            case ["GET", "v1", "transactions", identity]:
                return self._state(identity)
            case ["POST", "v1", "transactions", identity, "parts"]:
                return self._stage(identity, call)
            case ["POST", "v1", "transactions", identity, "commit"]:
                return self._commit(identity, call.shape)
            case ["POST", "v1", "transactions", identity, "abort"]:
                return self._abort(identity)
            case ["POST", "v1", "ns", namespace, "topics", topic, "messages"]:
                return self._send((namespace, topic), call)
            case ["GET", "v1", "ns", _, "topics", topic, "stats"]:
                return {"counts": {"ready": len(self.ready.get(topic, ()))}}
            case ["POST", "v1", "ns", _, "topics", topic, "claims", name]:
                return self._claim(topic, name, call.shape)
            case ["GET", "v1", "ns", _, "topics", topic, "claims", name, "rows"]:
                return self._rows(topic, name, call.query)
            case ["POST", "v1", "ns", _, "topics", topic, "claims", name, verb]:
                return self._settle(topic, name, verb)
        raise Refusal(404, "unknown", f"no such call: {call.method} {call.path}")

    def _session(self, query: dict[str, str]) -> dict[str, Any]:
        asked = (query["may"], query.get("topic"))
        if asked in self.lacks:
            raise Refusal(403, "forbidden", f"'p' lacks the right {asked[0]} on topic {asked[1]!r}")
        return {"principal": None}

    def _begin(self, shape: dict[str, Any]) -> dict[str, Any]:
        identity = shape["transaction"]
        assert shape["ttl_ms"] > 0
        found = self.transactions.setdefault(identity, FakeTransaction())
        return {"transaction": identity, "state": found.state}

    def _found(self, identity: str) -> FakeTransaction:
        if identity not in self.transactions:
            raise Refusal(404, "unknown", "there is no such transaction")
        return self.transactions[identity]

    def _state(self, identity: str) -> dict[str, Any]:
        found = self._found(identity)
        done = found.rows - self.unpublished if found.state == "committed" else 0
        kept = min(self.kept, done)
        return {
            "transaction": identity,
            "state": found.state,
            "rows": found.rows,
            "published": done,
            "results": {"created": done - kept, "kept": kept},
            "decided_at_ms": 1_770_000_000_000,
        }

    def _stage(self, identity: str, call: Call) -> dict[str, Any]:
        found = self._found(identity)
        if found.state != "open":
            raise Refusal(410, "gone", "the transaction has ended", state=found.state)
        query = call.query
        table, crc = _table(call, topics="topic" not in query), crc32(call.body)
        runs = [(query["topic"], 0, table.num_rows)] if "topic" in query else _runs(table)
        results = set()
        for index, (topic, first, count) in enumerate(runs):
            number = int(query["number"]) + index
            place = (query["producer"], int(query["part"]), int(query["attempt"]), number)
            if place in found.parts:
                if found.parts[place][1] != crc:
                    raise Refusal(409, "conflict", "this part was staged with other bytes")
                results.add("already")
                continue
            target = (query.get("ns", "default"), topic)
            rows = table.slice(first, count)
            if "topic" not in query:
                rows = rows.drop_columns(["topic"])
            found.parts[place] = (target, crc, rows)
            results.add("staged")
        return {"rows": table.num_rows, "result": max(results)}

    def _commit(self, identity: str, shape: dict[str, Any]) -> dict[str, Any]:
        found = self._found(identity)
        if found.state == "committed":
            return {"state": "committed", "rows": found.rows, "result": "already"}
        if found.state != "open":
            raise Refusal(410, "gone", "the transaction has ended", state=found.state)
        winners = {(each["producer"], each["part"], each["attempt"]) for each in shape["winners"]}
        for each in shape["winners"]:
            winner = (each["producer"], each["part"], each["attempt"])
            there = sum(t.num_rows for at, (_, _, t) in found.parts.items() if at[:3] == winner)
            if there != each["rows"]:
                raise Refusal(409, "conflict", f"part {each['part']} has {there} rows")
        for at, (target, _, table) in sorted(found.parts.items(), key=lambda item: item[0]):
            if at[:3] in winners:
                self.sent.setdefault(target, []).append(table)
                found.rows += table.num_rows
            else:
                self.discarded += table.num_rows
        found.state, found.parts = "committed", {}
        return {"state": "committed", "rows": found.rows, "result": "done"}

    def _abort(self, identity: str) -> dict[str, Any]:
        found = self._found(identity)
        if found.state == "committed":
            raise Refusal(409, "conflict", "the transaction is committed", state="committed")
        result = "done" if found.state == "open" else "already"
        found.state, found.parts = "aborted", {}
        return {"state": "aborted", "result": result}

    def _send(self, target: tuple[str, str], call: Call) -> dict[str, Any]:
        table, key = _table(call), call.headers["Idempotency-Key"]
        assert 1 <= len(key) <= 200
        n = table.num_rows
        if key in self.keys:
            self.deduplicated += n
            return {"n": n, "created": n, "kept": 0, "replaced": 0, "rejected": 0}
        self.keys.add(key)
        if "id" in table.column_names:
            living = {row for each in self.sent.get(target, ()) for row in each["id"].to_pylist()}
            fresh = [row not in living for row in table["id"].to_pylist()]
            table = table.filter(pa.array(fresh, pa.bool_()))
        self.deduplicated += n - table.num_rows
        self.sent.setdefault(target, []).append(table)
        created = table.num_rows
        return {"n": n, "created": created, "kept": n - created, "replaced": 0, "rejected": 0}

    def _claim(self, topic: str, name: str, shape: dict[str, Any]) -> dict[str, Any]:
        found = self.claims.get((topic, name))
        if found is None:
            waiting = self.ready.setdefault(topic, [])
            found = FakeClaim(waiting[: shape["max"]])
            del waiting[: shape["max"]]
            self.claims[topic, name] = found
        if found.state != "open":
            raise Refusal(410, "gone", "the claim has ended", state=found.state)
        return {"claim": name, "n": len(found.rows), "state": "open"}

    def _open_claim(self, topic: str, name: str) -> FakeClaim:
        found = self.claims.get((topic, name))
        if found is None:
            raise Refusal(404, "unknown", "there is no such claim")
        if found.state in ("expired", "purged"):
            raise Refusal(410, "gone", "the claim has ended", state=found.state)
        return found

    def _rows(self, topic: str, name: str, query: dict[str, str]) -> bytes:
        found = self._open_claim(topic, name)
        if found.state != "open":
            raise Refusal(410, "gone", "the claim has ended", state=found.state)
        rows = found.rows[int(query["from"]) : int(query["to"])]
        if any(row["id"] in self.removed for row in rows):
            raise Refusal(410, "gone", "messages were settled one by one", state="open")
        schema = pa.schema(
            [
                *((name, COLUMNS[name]) for name in ("value", "deliver_at", "id", "key")),
                ("topic", pa.string()),
                ("priority", pa.int32()),
                ("attempts", pa.int32()),
                ("headers", COLUMNS["headers"]),
                ("ref", pa.int64()),
            ]
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_table(pa.Table.from_pylist(rows, schema=schema))
        return bytes(sink.getvalue().to_pybytes())

    def _settle(self, topic: str, name: str, verb: str) -> dict[str, Any]:
        found = self._open_claim(topic, name)
        if found.state != "open":
            if found.state == f"{verb.removesuffix('e')}ed":
                return {"result": "already"}
            if verb == "extend":
                raise Refusal(410, "gone", "the claim has ended", state=found.state)
            raise Refusal(409, "conflict", "the claim was settled before", state=found.state)
        if verb == "extend":
            found.extended += 1
            return {"result": "done"}
        if verb == "ack":
            self.acked += found.rows
        elif verb == "release":
            self.ready.setdefault(topic, [])[:0] = found.rows
        found.state = f"{verb.removesuffix('e')}ed"
        return {"result": "done"}


def _runs(table: Any) -> list[tuple[str, int, int]]:
    """(topic, first row, rows) of adjacent rows of one topic."""
    out, first = [], 0
    for topic, rows in groupby(table["topic"].to_pylist()):
        out.append((topic, first, len(list(rows))))
        first += out[-1][2]
    return out


def _table(call: Call, *, topics: bool = False) -> Any:
    """The rows of an Arrow body, judged whole as the broker does."""
    assert call.headers["Content-Type"] == ARROW_TYPE
    with pa.ipc.open_stream(call.body) as stream:
        table = stream.read_all()
    known = COLUMNS | ({"topic": pa.string()} if topics else {})
    for column in table.schema:
        if column.name not in known:
            raise Refusal(400, "bad_request", f"unknown column {column.name!r}", field=column.name)
        assert column.type == known[column.name], column
    for row, value in enumerate(table["value"].to_pylist()):
        if value is None:
            raise Refusal(400, "bad_request", "value is null", field="value", item=row)
        if len(value) > BODY_BYTES_MAX:
            raise Refusal(413, "too_large", "the body is over the limit", item=row)
        if value == b"refuse me":
            raise Refusal(400, "bad_request", "this one is not wanted", item=row)
    return table

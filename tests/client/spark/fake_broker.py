"""A small broker of the calls that Spark's side uses, in a thread of the test.

It keeps what it takes in memory and follows the contract of transactions, direct sends and claims
strictly: whatever the real broker refuses, this one does. A test gives it faults: before a call,
or after one that was carried out and whose answer is lost.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from zlib import crc32

import pyarrow as pa

ARROW_TYPE = "application/vnd.apache.arrow.stream"
BODY_BYTES_MAX = 4 * 1024 * 1024
COLUMNS = {
    "value": pa.binary(),
    "deliver_at": pa.timestamp("us", tz="UTC"),
    "id": pa.string(),
    "key": pa.string(),
    "priority": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


class Refusal(Exception):
    """A problem document."""

    def __init__(self, status: int, code: str, detail: str, **members: Any) -> None:
        self.status = status
        self.document = {"code": code, "status": status, "detail": detail, **members}


@dataclass
class Call:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def shape(self) -> dict[str, Any]:
        found = json.loads(self.body or b"{}")
        assert isinstance(found, dict)
        return found


@dataclass
class Fault:
    """What becomes of a call: an answer instead of it, or its answer lost."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    lose_answer: bool = False


@dataclass
class FakeTransaction:
    state: str = "open"
    rows: int = 0
    expires_at_ms: int = 0
    parts: dict[tuple[str, int, int, int], tuple[tuple[str, str], int, Any]] = field(
        default_factory=dict
    )


@dataclass
class FakeClaim:
    rows: list[dict[str, Any]]
    state: str = "open"
    extended: int = 0


class FakeBroker:
    """Use as `with FakeBroker() as broker:`; its address is `broker.url`."""

    def __init__(self, *, token: str | None = None) -> None:
        self.token = token
        self.calls: list[Call] = []
        self.transactions: dict[str, FakeTransaction] = {}
        self.sent: dict[tuple[str, str], list[Any]] = {}
        """Tables that are visible, by namespace and topic."""
        self.keys: set[str] = set()
        self.ready: dict[str, list[dict[str, Any]]] = {}
        self.claims: dict[tuple[str, str], FakeClaim] = {}
        self.acked: list[dict[str, Any]] = []
        self.members: list[dict[str, Any]] = []
        self.discarded = 0
        self.deduplicated = 0
        self.fault: Callable[[Call], Fault | None] = lambda call: None
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        # Asked often whether to stop: it is stopped once a test.
        serve = partial(self._server.serve_forever, poll_interval=0.01)
        threading.Thread(target=serve, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    # What tests look at

    def rows(self, topic: str, namespace: str = "default") -> list[dict[str, Any]]:
        """What consumers would see."""
        with self._lock:
            tables = list(self.sent.get((namespace, topic), ()))
        return [row for table in tables for row in table.to_pylist()]

    def ids(self, topic: str) -> list[str]:
        return [row["id"] for row in self.rows(topic)]

    def called(self, method: str, ending: str) -> list[Call]:
        return [call for call in self.calls if call.method == method and call.path.endswith(ending)]

    def expire(self, identity: str) -> None:
        self.transactions[identity].state = "expired"

    def expire_claims(self) -> None:
        with self._lock:
            for (topic, _), claim in self.claims.items():
                if claim.state == "open":
                    claim.state = "expired"
                    self.ready.setdefault(topic, [])[:0] = claim.rows

    # What it answers

    def answer(self, call: Call) -> dict[str, Any] | bytes:
        if self.token is not None and call.headers.get("Authorization") != f"Bearer {self.token}":
            said = call.headers.get("Authorization", "none")
            raise Refusal(401, "unauthorized", f"a token is needed, not {said}")
        parts = [unquote(part) for part in call.path.split("/")[1:]]
        match [call.method, *parts]:
            case ["GET", "v1", "clock"]:
                return {"now_ms": time.time_ns() // 1_000_000}
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
                if topic not in self.ready:
                    raise Refusal(404, "unknown", "there is no such topic")
                return {"counts": {"ready": len(self.ready[topic])}}
            case ["POST", "v1", "ns", _, "topics", topic, "claims", name]:
                return self._claim(topic, name, call.shape)
            case ["GET", "v1", "ns", _, "topics", topic, "claims", name, "rows"]:
                return self._rows(topic, name, call.query)
            case ["POST", "v1", "ns", _, "topics", topic, "claims", name, verb]:
                return self._settle(topic, name, verb)
        raise Refusal(404, "unknown", f"no such call: {call.method} {call.path}")

    def _begin(self, shape: dict[str, Any]) -> dict[str, Any]:
        identity = shape["transaction"]
        found = self.transactions.setdefault(
            identity, FakeTransaction(expires_at_ms=shape["ttl_ms"] + 1_000)
        )
        return {
            "transaction": identity,
            "state": found.state,
            "expires_at_ms": found.expires_at_ms,
        }

    def _found(self, identity: str) -> FakeTransaction:
        if identity not in self.transactions:
            raise Refusal(404, "unknown", "there is no such transaction")
        return self.transactions[identity]

    def _state(self, identity: str) -> dict[str, Any]:
        found = self._found(identity)
        return {"transaction": identity, "state": found.state, "rows": found.rows}

    def _stage(self, identity: str, call: Call) -> dict[str, Any]:
        found = self._found(identity)
        if found.state != "open":
            raise Refusal(410, "gone", "the transaction has ended", state=found.state)
        query = call.query
        place = (
            query["producer"],
            int(query["part"]),
            int(query["attempt"]),
            int(query["number"]),
        )
        table, crc = _table(call), crc32(call.body)
        if place in found.parts:
            if found.parts[place][1] != crc:
                raise Refusal(409, "conflict", "this part was staged with other bytes")
            return {"rows": table.num_rows, "result": "already"}
        found.parts[place] = ((query.get("ns", "default"), query["topic"]), crc, table)
        return {"rows": table.num_rows, "result": "staged"}

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
        if found.state == "expired":
            raise Refusal(410, "gone", "the claim has ended", state=found.state)
        return found

    def _rows(self, topic: str, name: str, query: dict[str, str]) -> bytes:
        found = self._open_claim(topic, name)
        rows = found.rows[int(query["from"]) : int(query["to"])]
        schema = pa.schema(
            [
                *((name, kind) for name, kind in COLUMNS.items() if name != "headers"),
                ("topic", pa.string()),
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
        if verb == "extend":
            found.extended += 1
            return {"result": "done"}
        if found.state != "open":
            return {"result": "already"}
        if verb == "ack":
            self.acked += found.rows
        elif verb == "release":
            self.ready.setdefault(topic, [])[:0] = found.rows
        found.state = f"{verb}ed"
        return {"result": "done"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        broker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Answers are small; without this the second write waits for an acknowledgement.
            wbufsize = -1

            def log_message(self, *args: Any) -> None:
                """A test that fails shows the calls itself."""

            def do_GET(self) -> None:
                self._serve()

            def do_POST(self) -> None:
                self._serve()

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                call = Call(
                    self.command,
                    parts.path,
                    {name: values[-1] for name, values in parse_qs(parts.query).items()},
                    dict(self.headers.items()),
                    self.rfile.read(int(self.headers.get("Content-Length", 0))),
                )
                with broker._lock:
                    broker.calls.append(call)
                    fault = broker.fault(call)
                    if fault is not None and fault.status:
                        self._reply(fault.status, fault.document, fault.headers)
                        return
                    try:
                        status, found = 200, broker.answer(call)
                    except Refusal as refusal:
                        status, found = refusal.status, refusal.document
                if fault is not None and fault.lose_answer:
                    self.close_connection = True
                    return
                self._reply(status, found, {})

            def _reply(
                self, status: int, found: dict[str, Any] | bytes, headers: dict[str, str]
            ) -> None:
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()

        return Handler


def _table(call: Call) -> Any:
    """The rows of an Arrow body, judged whole as the broker does."""
    assert call.headers["Content-Type"] == ARROW_TYPE
    with pa.ipc.open_stream(call.body) as stream:
        table = stream.read_all()
    for column in table.schema:
        if column.name not in COLUMNS:
            raise Refusal(400, "bad_request", f"unknown column {column.name!r}", field=column.name)
        assert column.type == COLUMNS[column.name], column
    for row, value in enumerate(table["value"].to_pylist()):
        if value is None:
            raise Refusal(400, "bad_request", "value is null", field="value", item=row)
        if len(value) > BODY_BYTES_MAX:
            raise Refusal(413, "too_large", "the body is over the limit", item=row)
        if value == b"refuse me":
            raise Refusal(400, "bad_request", "this one is not wanted", item=row)
    return table

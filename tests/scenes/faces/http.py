"""HTTP with JSON bodies. What the server's other interfaces have no words for is asked here too."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from tests.broker.answer import Answer
from tests.broker.conftest import Broker
from tests.scenes.faces.face import Face, Refused, Seen, Sent, Taken, nonzero, steps

CALLS = {
    "begin_job": "POST {topic}/messages:{}",
    "job": "GET /v1/jobs/{}",
    "jobs": "GET /v1/jobs",
    "stop_job": "DELETE /v1/jobs/{}",
    "count_messages": "GET {topic}/messages:count",
    "dead_reasons": "GET {topic}/dead/reasons",
    "schedules": "GET {topic}/schedules",
    "all_schedules": "GET /v1/schedules",
    "schedule": "GET {topic}/schedules/{}",
    "put_schedule": "PUT {topic}/schedules/{}",
    "update_schedule": "PATCH {topic}/schedules/{}",
    "drop_schedule": "DELETE {topic}/schedules/{}",
    "pause_schedule": "POST {topic}/schedules/{}/pause",
    "resume_schedule": "POST {topic}/schedules/{}/resume",
    "run_schedule": "POST {topic}/schedules/{}/run",
    "backfill_schedule": "POST {topic}/schedules/{}/backfill",
    "preview_schedule": "GET {topic}/schedules/{}/preview",
    "try_schedule": "POST {topic}/schedules/{}/preview?n={}",
    "targets": "GET {topic}/targets",
    "all_targets": "GET /v1/targets",
    "target": "GET {topic}/groups/{}/target",
    "put_target": "PUT {topic}/groups/{}/target",
    "update_target": "PATCH {topic}/groups/{}/target",
    "drop_target": "DELETE {topic}/groups/{}/target",
}
"""Where calls of plain clients are."""


def body_member(body: bytes | str) -> dict[str, str]:
    if isinstance(body, str):
        return {"body": body}
    return {"body_base64": base64.b64encode(body).decode()}


def body_of(members: dict[str, Any]) -> bytes:
    text = members.get("body")
    return base64.b64decode(members["body_base64"]) if text is None else text.encode()


class HttpFace(Face):
    """Requests by a plain client."""

    cannot = frozenset({"clock"})

    def __init__(self, name: str, broker: Broker, topic: str) -> None:
        self.name = name
        self.broker = broker
        self.topic = topic

    def ask(self, method: str, tail: str, members: Any = None) -> Answer:
        """A call about the topic, which may be refused."""
        return self.broker.call(method, f"/v1/topics/{self.topic}{tail}", members)

    def do(self, method: str, tail: str, members: Any = None) -> Any:
        answer = self.ask(method, tail, members)
        if answer.status >= 400:
            raise Refused(answer.json["code"])
        return answer.json

    def send(self, body: bytes | str, **fields: Any) -> Sent:
        sent = self.do("POST", "/messages", body_member(body) | fields)
        return Sent(sent["id"], sent["result"])

    def send_many(self, messages: Sequence[dict[str, Any]]) -> list[Sent]:
        rows = [each | body_member(each["body"]) for each in messages]
        answer = self.do("POST", "/messages", rows)
        return [Sent(each["id"], each["result"]) for each in answer["messages"]]

    def receive(self, max: int = 1, **asked: Any) -> list[Taken]:
        names = ("key", "tags", "headers", "priority")
        return [
            Taken(
                each["id"],
                body_of(each),
                each["attempts"],
                each["deliver_at_ms"],
                each["receipt"],
                {name: each[name] for name in names},
            )
            for each in self.do("POST", "/receive", {"max": max, **asked})["messages"]
        ]

    def settle(self, verb: str, taken: Sequence[Taken], **how: Any) -> list[str]:
        receipts = [each.handle for each in taken]
        results: list[str] = self.do("POST", f"/{verb}", {"receipts": receipts, **how})["results"]
        return results

    def ack(self, taken: Sequence[Taken]) -> list[str]:
        return self.settle("ack", taken)

    def nack(self, taken: Sequence[Taken], **how: Any) -> list[str]:
        return self.settle("nack", taken, **how)

    def extend(self, taken: Sequence[Taken], lease_ms: int) -> list[str]:
        return self.settle("extend", taken, lease_ms=lease_ms)

    def begin(self, taken: Sequence[Taken], lease_ms: int | None = None) -> list[str]:
        return self.settle("begin", taken, **({} if lease_ms is None else {"lease_ms": lease_ms}))

    def reject(self, taken: Sequence[Taken], **how: Any) -> list[str]:
        return self.settle("reject", taken, **how)

    def peek(self, **asked: Any) -> list[str]:
        return [each["id"] for each in self.do("POST", "/peek", asked)["messages"]]

    def get(self, id: str, group: str | None = None) -> Seen | None:
        query = "" if group is None else f"?group={group}"
        answer = self.ask("GET", f"/messages/{quote(id, safe='')}{query}")
        if answer.status == 404:
            return None
        found = answer.json
        return Seen(
            found["state"],
            found["deliver_at_ms"],
            found["attempts"],
            found["cause"],
            found.get("backoff"),
            found["reason"],
        )

    def changed(self, answer: Answer) -> str:
        found = answer.json
        if answer.status == 200:
            return str(found["result"])
        if found["code"] not in ("too_late", "unknown"):
            raise Refused(found["code"])
        return str(found.get("state", "unknown"))

    def cancel(self, id: str, *, force: bool = False) -> str:
        tail = f"/messages/{quote(id, safe='')}" + ("?force=true" if force else "")
        return self.changed(self.ask("DELETE", tail))

    def reschedule(self, id: str, **when: int) -> str:
        return self.changed(self.ask("PATCH", f"/messages/{quote(id, safe='')}", when))

    def replay(self, *ids: str) -> list[str]:
        results = self.do("POST", "/messages:replay", {"ids": ids})["results"]
        return [each["result"] for each in results]

    def listed(self, **filters: Any) -> dict[str, str]:
        states = filters.pop("state", None)
        query = filters | ({} if states is None else {"state": ",".join(states)})
        self.do("GET", f"/messages?{urlencode(query)}")
        found = self.broker.all_pages(f"/v1/topics/{self.topic}/messages", **query)
        return {each["id"]: each["state"] for each in found}

    def dead(self, **filters: str) -> list[tuple[str, str | None, str | None, list[str]]]:
        path = f"/v1/topics/{self.topic}/dead"
        names = ("id", "cause", "reason")
        return [
            (*(each[name] for name in names), [step["event"] for step in each["history"]])
            for each in self.broker.all_pages(path, **filters)
        ]

    def life(self, id: str) -> list[tuple[str, str | None, str | None]]:
        return steps(self.do("GET", f"/messages/{quote(id, safe='')}?life=true")["life"])

    def plain(self, name: str, *given: Any, **members: Any) -> dict[str, Any]:
        method, _, place = CALLS[name].partition(" ")
        texts = [quote(str(each), safe="") for each in given]
        if "body" in members:
            members |= body_member(members.pop("body"))
        path = place.format(*texts, topic=f"/v1/topics/{self.topic}")
        if method == "GET":
            path, members = f"{path}?{urlencode(members)}", {}
        answer = self.broker.call(method, path, members if method != "GET" else None)
        if answer.status >= 400:
            raise Refused(answer.json["code"])
        found: dict[str, Any] = answer.json
        return found

    def configure(self, **settings: Any) -> None:
        self.do("PUT", "", settings)

    def exists(self) -> bool:
        return self.ask("GET", "").status == 200

    def update(self, **settings: Any) -> dict[str, Any]:
        changed: dict[str, Any] = self.do("PATCH", "", settings)["settings"]
        return changed

    def counts(self, group: str | None = None) -> dict[str, int] | None:
        answer = self.ask("GET", "/stats" if group is None else f"/stats?group={group}")
        return nonzero(answer.json["counts"]) if answer.status == 200 else None

    def put_group(self, group: str) -> None:
        self.do("PUT", f"/groups/{group}", {})

    def drop_group(self, group: str) -> None:
        self.do("DELETE", f"/groups/{group}")

    def purge(self, *, force: bool = False) -> int:
        return int(self.do("POST", "/purge", {"force": force})["purged"])

    def pause(self, *, on: bool) -> None:
        self.do("POST", "/pause" if on else "/resume")

    def drop(self, *, force: bool = False) -> None:
        self.do("DELETE", "?force=true" if force else "")

    def now_ms(self) -> int:
        return int(self.broker.call("GET", "/v1/clock").json["now_ms"])

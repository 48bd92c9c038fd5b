"""HTTP with JSON bodies. What the server's other interfaces have no words for is asked here too."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from tests.broker.answer import Answer
from tests.broker.conftest import Broker
from tests.scenes.faces.face import Face, Refused, Seen, Sent, Taken, nonzero


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

    def nack(self, taken: Sequence[Taken], delay_ms: int | None = None) -> list[str]:
        return self.settle("nack", taken, **({} if delay_ms is None else {"delay_ms": delay_ms}))

    def extend(self, taken: Sequence[Taken], lease_ms: int) -> list[str]:
        return self.settle("extend", taken, lease_ms=lease_ms)

    def begin(self, taken: Sequence[Taken], lease_ms: int | None = None) -> list[str]:
        return self.settle("begin", taken, **({} if lease_ms is None else {"lease_ms": lease_ms}))

    def reject(self, taken: Sequence[Taken]) -> list[str]:
        return self.settle("reject", taken)

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

    def dead(self) -> list[tuple[str, str | None, list[str]]]:
        return [
            (each["id"], each["cause"], [step["event"] for step in each["history"]])
            for each in self.broker.all_pages(f"/v1/topics/{self.topic}/dead")
        ]

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

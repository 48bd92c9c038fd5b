"""The delay log's verbs over RESP. Settings, groups and whole topics are the business of HTTP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import hiredis

from delaylog.contract.error_codes import CODES
from tests.broker.conftest import Broker
from tests.broker.resp.resp_client import RespClient
from tests.scenes.faces.face import Refused, Seen, Sent, Taken
from tests.scenes.faces.http import HttpFace

CODE_OF = {each.word: each.code for each in CODES.values()}
OPTIONS = {"id": "ID", "priority": "PRIORITY", "ttl_ms": "TTL", "key": "KEY", "merge": "MERGE"}
OPTIONS |= {"max_retry": "RETRIES"}


def tagged(tags: Sequence[str]) -> list[Any]:
    return ["TAGS", len(tags), *tags]


def mapped(flat: list[Any]) -> dict[str, Any]:
    """A map in the second version of the protocol."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


class RespFace(HttpFace):
    """One connection."""

    cannot = frozenset(
        {
            "backoff",
            "begin",
            "choose",
            "clock",
            "failures",
            "force",
            "jobs",
            "list",
            "peek",
            "reasons",
            "reject",
            "replay",
            "schedules",
            "targets",
        }
    )

    def __init__(self, name: str, broker: Broker, topic: str, client: RespClient) -> None:
        super().__init__(name, broker, topic)
        self.client = client

    def verb(self, name: str, *words: Any) -> Any:
        reply = self.client.call(f"DL.{name}", self.topic, *words)
        if isinstance(reply, hiredis.ReplyError):
            raise Refused(CODE_OF[str(reply).split()[0]])
        return reply

    def send(self, body: bytes | str, **fields: Any) -> Sent:
        words: list[Any] = [self.when(fields), body]
        for name, value in fields.items():
            if name == "tags":
                words += tagged(value)
            elif name in ("headers", "backoff"):
                words += [name.upper(), json.dumps(value)]
            elif name not in ("delay_ms", "deliver_at_ms"):
                words += [OPTIONS[name], value]
        return Sent(self.verb("SEND", *words).decode())

    def when(self, fields: dict[str, Any]) -> Any:
        due = fields.get("deliver_at_ms")
        return fields.get("delay_ms", 0) if due is None else f"@{due}"

    def send_many(self, messages: Sequence[dict[str, Any]]) -> list[Sent]:
        words = [word for each in messages for word in (self.when(each), each["body"])]
        return [Sent(each.decode()) for each in self.verb("MSEND", *words)]

    def receive(self, max: int = 1, **asked: Any) -> list[Taken]:
        words: list[Any] = ["META"]
        for name, option in (("wait_ms", "WAIT"), ("lease_ms", "LEASE"), ("group", "GROUP")):
            if asked.get(name) is not None:
                words += [option, asked[name]]
        if "tags" in asked:
            words += tagged(asked["tags"])
        return [self.taken(*each) for each in self.verb("RECEIVE", max, *words)]

    def taken(self, *row: Any) -> Taken:
        name, receipt, body, due_ms, attempts, priority, key, tags, headers = row
        fields = {
            "key": None if key is None else key.decode(),
            "tags": [tag.decode() for tag in tags],
            "headers": {name: text.decode() for name, text in mapped(headers).items()},
            "priority": priority,
        }
        return Taken(name.decode(), body, attempts, due_ms, receipt, fields)

    def settle(self, verb: str, taken: Sequence[Taken], **how: Any) -> list[str]:
        """One by one: the answer is a number of messages."""
        words = [how["lease_ms"]] if verb == "extend" else []
        if "delay_ms" in how:
            words = ["DELAY", how["delay_ms"]]
        counts = [self.verb(verb.upper(), *words, each.handle) for each in taken]
        return ["done" if count else "gone" for count in counts]

    def get(self, id: str, group: str | None = None) -> Seen | None:
        assert group is None
        flat = self.verb("GET", id)
        if flat is None:
            return None
        found = mapped(flat)
        cause = found["cause"]
        return Seen(
            found["state"].decode(),
            found["deliver_at_ms"],
            found["attempts"],
            None if cause is None else cause.decode(),
        )

    def cancel(self, id: str, *, force: bool = False) -> str:
        assert not force
        return "done" if self.verb("CANCEL", id) else "not done"

    def reschedule(self, id: str, **when: int) -> str:
        try:
            self.verb("RESCHEDULE", id, self.when(when))
        except Refused as refused:
            if refused.code not in ("too_late", "unknown"):
                raise
            return "not done"
        return "done"

    def counts(self, group: str | None = None) -> dict[str, int] | None:
        if group is not None:
            return super().counts(group)
        flat = self.verb("STATS")
        if flat is None:
            return None
        return {name: count for name, count in mapped(flat).items() if count and name != "sent"}

"""camellia's API, which has one group, texts, and acks that never fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from tests.scenes.faces.face import Refused, Seen, Sent, Taken
from tests.scenes.faces.http import HttpFace

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
STATES = {
    1: "waiting",
    2: "ready",
    3: "leased",
    4: "acked",
    5: "expired",
    6: "dead",
    7: "cancelled",
}
CODES = {400: "bad_request", 404: "unknown", 500: "not done"}
SENT = {"id": "msgId", "delay_ms": "delayMillis", "ttl_ms": "ttlMillis", "max_retry": "maxRetry"}
ASKED = {"lease_ms": "ackTimeoutMillis", "wait_ms": "longPollingTimeoutMillis"}


class CamelliaFace(HttpFace):
    """Forms, and codes in the answers."""

    cannot = frozenset(
        {
            *(
                "array",
                "backoff",
                "bytes",
                "cancel",
                "choose",
                "clock",
                "delay",
                "begin",
                "extend",
                "failures",
                "fields",
                "force",
            ),
            *("groups", "jobs", "schedules", "targets"),
            *("list", "merge", "peek", "reasons", "reject", "replay", "reschedule"),
            "results",
            "tags",
        }
    )

    def form(self, call: str, **params: Any) -> dict[str, Any]:
        form = urlencode({"topic": self.topic, **params}).encode()
        answer = self.broker.call("POST", f"/camellia/delayQueue/{call}", form, FORM).json
        code = answer.get("code", 400)
        if code != 200:
            raise Refused(CODES[code])
        return dict(answer)

    def send(self, body: bytes | str, **fields: Any) -> Sent:
        named = {SENT[name]: value for name, value in fields.items() if name in SENT}
        if "backoff" in fields:
            named["backoff"] = json.dumps(fields["backoff"])
        named.setdefault("delayMillis", 0)
        return Sent(self.form("sendMsg", msg=body, **named)["delayMsg"]["msgId"])

    def receive(self, max: int = 1, **asked: Any) -> list[Taken]:
        call = "longPollingMsg" if "wait_ms" in asked else "pullMsg"
        named = {ASKED[name]: value for name, value in asked.items()}
        return [
            Taken(
                each["msgId"],
                each["msg"].encode(),
                each["retry"],
                each["triggerTime"],
                each["msgId"],
            )
            for each in self.form(call, batch=max, **named)["delayMsgList"]
        ]

    def ack(self, taken: Sequence[Taken]) -> list[str]:
        for each in taken:
            self.form("ackMsg", msgId=each.handle, ack="true")
        return []

    def nack(self, taken: Sequence[Taken], **how: Any) -> list[str]:
        assert not how
        for each in taken:
            self.form("ackMsg", msgId=each.handle, ack="false")
        return []

    def get(self, id: str, group: str | None = None) -> Seen | None:
        assert group is None
        try:
            found = self.form("getMsg", msgId=id)["delayMsg"]
        except Refused as refused:
            if refused.code != "unknown":
                raise
            return None
        return Seen(STATES[found["status"]], found["triggerTime"], found["retry"])

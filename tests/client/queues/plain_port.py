"""Client with a send_many of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from delaylog.client.client import Client
from delaylog.client.models import NewMessage, Sent


class PlainPort(Client):
    def send_many(
        self, topic: str, messages: Iterable[NewMessage | bytes | str], **defaults: Any
    ) -> list[Sent]:
        shapes = []
        for each in messages:
            assert isinstance(each, NewMessage)
            fields = {n: getattr(each, n) for n in each.__dataclass_fields__}
            shapes.append({**defaults, **{n: v for n, v in fields.items() if v not in (None, ())}})
        return self.broker().send_many(topic, shapes)

"""What a broker answered to a plain HTTP client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgpack


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; status 0 = nobody was reached, or broke off."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def packed(self) -> Any:
        return msgpack.unpackb(self.body)

"""Codecs: how the values of a program become bodies, and bodies values again.

`json=` is JSON in every client. `value=` and `message.value()` go through the codec of the client,
which is JSON too unless another one is given.
"""

from __future__ import annotations

import json
from typing import Any, Final, Protocol


class Codec(Protocol):
    """What `Client(codec=…)` takes. Several threads may call it at the same time."""

    def encode(self, value: Any, /) -> bytes:
        """The body of a value. TypeError or ValueError for one that it cannot encode."""

    def decode(self, body: bytes, /) -> Any:
        """The value of a body. ValueError for one that it cannot decode."""


class JsonCodec:
    """Compact JSON in UTF-8."""

    def encode(self, value: Any, /) -> bytes:
        """The JSON. TypeError for what JSON does not have, ValueError for NaN and infinity."""
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode()

    def decode(self, body: bytes, /) -> Any:
        """The parsed JSON. ValueError if it is none."""
        return json.loads(body)

    def __repr__(self) -> str:
        return "JsonCodec()"


JSON: Final[Codec] = JsonCodec()


def check_codec(codec: object) -> None:
    """TypeError unless it is a codec, and not its class."""
    ways = (getattr(codec, name, None) for name in ("encode", "decode"))
    if isinstance(codec, type) or not all(map(callable, ways)):
        raise TypeError(f"a codec has encode(value) and decode(body), which {codec!r} has not")

"""Converts rejected rows to messages of the dead-letter topic, with the reason in headers.

Such a message can always be stored: it has neither the id nor the key of the row, is due now, and a
body that is too large is truncated.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from pyspark_delaylog.columns import HEADERS, TIME

BODY_BYTES_MAX: Final = 256 * 1024
"""Limit of the value of a rejected row, well below the limit of a broker."""
TEXT_CHARS_MAX: Final = 300
"""Limit of the text of a header."""
HEADER: Final = "delaylog-rejected-"


def letters(rows: Any, reason: str, topic: str | None) -> Any:
    """Build a batch for the wire, row by row, since there are few rejected rows."""
    shapes = rows.to_pylist()
    bodies, headers = [], []
    for shape in shapes:
        body = shape.get("value") or b""
        said = {
            "reason": reason,
            "topic": shape.get("topic", topic),
            "id": shape.get("id"),
            "key": shape.get("key"),
            "deliver-at": shape.get("deliver_at"),
            "bytes": len(body) if len(body) > BODY_BYTES_MAX else None,
        }
        bodies.append(body[:BODY_BYTES_MAX])
        headers.append(
            [
                {"key": HEADER + name, "value": str(value)[:TEXT_CHARS_MAX].encode()}
                for name, value in said.items()
                if value is not None
            ]
        )
    # A time in the past means now, and a repeated task produces the same bytes.
    return pa.RecordBatch.from_arrays(
        [
            pa.array(bodies, pa.binary()),
            pa.array([0] * len(shapes), pa.int64()).cast(TIME),
            pa.array(headers, HEADERS),
        ],
        names=["value", "deliver_at", "headers"],
    )

"""Rejected rows as messages of the dead-letter topic: the body, and in headers what was wrong.

The one rule: such a message can always be stored. So it has no id and no key of the row's own, is
due at once, and a body that would be too large is cut.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from pyspark_delaylog.columns import HEADERS, TIME

BODY_BYTES_MAX: Final = 256 * 1024
"""Of a rejected row's value; well below what a broker takes."""
TEXT_CHARS_MAX: Final = 300
"""Of a header's text."""
HEADER: Final = "delaylog-rejected-"


def letters(rows: Any, reason: str, topic: str | None) -> Any:
    """A batch for the wire. Row by row, since there are few of them."""
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
    # A past time means now, and is the same whenever a task is run again.
    return pa.RecordBatch.from_arrays(
        [
            pa.array(bodies, pa.binary()),
            pa.array([0] * len(shapes), pa.int64()).cast(TIME),
            pa.array(headers, HEADERS),
        ],
        names=["value", "deliver_at", "headers"],
    )

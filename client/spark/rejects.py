"""Converts rejected rows to messages of the dead-letter topic, with the reason in headers.

Such a message can always be stored: it has neither the id nor the key of the row, is due now, and a
body that is too large is truncated.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from pyspark_delaylog.columns import HEADERS, TIME

BODY_BYTES_MAX: Final = 256 * 1024
"""Limit of the value of a rejected row, well below the limit of a broker."""
TEXT_CHARS_MAX: Final = 300
"""Limit of the text of a header."""
HEADER: Final = "delaylog-rejected-"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def letters(rows: Any, reason: str, topic: str | None) -> Any:
    """Build a batch for the wire, row by row, since there are few rejected rows."""
    if "deliver_at" in rows.schema.names:
        times = rows.column("deliver_at").cast(pa.int64())
        rows = rows.drop_columns(["deliver_at"]).append_column("deliver_at", times)
    shapes = rows.to_pylist()
    bodies, headers = [], []
    for shape in shapes:
        body = shape.get("value") or b""
        said = {
            "reason": reason,
            "topic": shape.get("topic", topic),
            "id": shape.get("id"),
            "key": shape.get("key"),
            "deliver-at": _time(shape.get("deliver_at")),
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


def _time(us: int | None) -> str | None:
    """A time as text; as a number if its year has more than four digits."""
    try:
        return None if us is None else str(EPOCH + timedelta(microseconds=us))
    except OverflowError:
        return f"{us} microseconds since 1970"

"""The home shard of each row, as a column: to which of several brokers a client sends it.

The rules are those of `delaylog.client.ByKey` and `BySlot`: with them `Client(a, b)` finds a
message of Spark by its id. A load goes to one broker, so a DataFrame for N shards is N loads.
"""

from __future__ import annotations

from typing import Any

from pyspark_delaylog.errors import OptionError


def home_shard(frame: Any, shards: int, *, slots: int | None = None) -> Any:
    """The index of each row's shard, from 0; with `slots`, that of `BySlot(slots)`.

    It follows from the key, otherwise from the id. The SDK sends a message without both to any
    shard; here it follows from the body, so that loads that are run again divide the rows alike.
    """
    from pyspark.sql import functions as sql

    if shards < 1 or (slots is not None and (slots < shards or slots & (slots - 1))):
        raise OptionError(
            f"home_shard: {shards} shards of {slots} slots; shards are 1 and more, slots a power "
            "of two that is not smaller"
        )
    texts = [
        sql.nullif(frame[name], sql.lit("")) for name in ("key", "id") if name in frame.columns
    ]
    hashed = sql.crc32(sql.coalesce(*(each.cast("binary") for each in (*texts, frame["value"]))))
    if slots is None:
        return (hashed % shards).cast("int")
    return sql.floor(hashed % slots * shards / slots).cast("int")

"""Removes the ids of an ended hour from the id index, in jobs for a worker thread.

Ids are hashes, so those of consecutive rows are spread over the whole index. They are gathered and
sorted by key first: then each job looks up neighbouring keys, which share pages.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.ids.id_index import OWNED_ID, IdIndex, OwnedIds
from delaylog.storage.layout import HOUR_SHIFT, Int64Array, RowArray
from delaylog.storage.work import Work

READ_ROWS: Final = 16_384
"""Rows of one job: numpy keeps the interpreter's lock for a part of the work on them."""
SORTED_MAX: Final = 1 << 19
"""Ids that are sorted together: 10 MiB."""


def owned_ids(rows: RowArray, hour: int | Int64Array) -> OwnedIds:
    """The client-chosen ids of the rows whose origin is in `hour`.

    `hour` is one for all rows, or one for each. A row with an origin in another hour is a moved
    message, which may be living in a third hour.
    """
    mask = (rows["id_hash"] != 0) & (rows["origin"].astype(np.int64) >> HOUR_SHIFT == hour)
    out = np.empty(int(np.count_nonzero(mask)), OWNED_ID)
    for name in ("topic", "id_hash", "origin"):
        out[name] = rows[name][mask]
    return out


def forget_hour(ids: IdIndex, folder: DelayHour) -> Work:
    """Remove the ids of an hour's rows, except ids that a newer message has taken."""
    found: list[OwnedIds] = []
    for first in range(1, folder.row_count + 1, READ_ROWS):
        yield partial(_gather, folder, first, found)
        if sum(map(len, found)) >= SORTED_MAX:
            yield from ids.forget_jobs(found)
            found.clear()
    yield from ids.forget_jobs(found)


def _gather(folder: DelayHour, first: int, found: list[OwnedIds]) -> None:
    last = min(first + READ_ROWS - 1, folder.row_count)
    owned = owned_ids(folder.read_range(first, last), folder.hour)
    if len(owned):
        found.append(owned)

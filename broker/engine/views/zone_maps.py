"""Which rows of an hour's files can match at all, by the zone maps of its extents."""

from __future__ import annotations

import numpy as np

from delaylog.storage.hours.delay_hour import DelayHour
from delaylog.storage.hours.far.far_hour import FarHour


def candidates(
    folder: DelayHour | FarHour,
    last: int,
    *,
    topic: int | None,
    tag_bits: int = 0,
    due_from: int,
    due_to: int,
) -> list[tuple[int, int]]:
    """Ranges (first, last) of rows up to `last` that may be of a topic (None = any), have all the
    bits of a tag, and are due in [due_from, due_to).

    Far hours have no zone maps, so all their rows are candidates.
    """
    if last == 0:
        return []
    if isinstance(folder, FarHour):
        return [(1, last)]
    extents = folder.extents()
    tag = np.uint64(tag_bits)
    first, count = extents["first_index"].astype(np.int64), extents["count"].astype(np.int64)
    mask = extents["due_max"] >= due_from
    mask &= extents["due_min"] < due_to
    if topic is not None:
        mask &= (extents["topic_bits"] & np.uint64(1 << topic % 64)) != 0
    mask &= (extents["tag_bits"] & tag) == tag
    mask &= first <= last
    firsts, lasts = first[mask], np.minimum((first + count - 1)[mask], last)
    if len(firsts) == 0:
        return []
    # Adjacent ranges are merged, so that many small flushes are read at once.
    apart = firsts[1:] != lasts[:-1] + 1
    firsts = firsts[np.concatenate([[True], apart])]
    lasts = lasts[np.concatenate([apart, [True]])]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))

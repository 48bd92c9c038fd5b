"""Checksums by column are those of the library, for records of any length."""

from __future__ import annotations

import numpy as np
import pytest
from crc32c import crc32c

from delaylog.storage.columns.crc_columns import crc32c_rows


@pytest.mark.parametrize("length", [0, 1, 8, 20, 33])
def test_it_is_the_library_s(length: int) -> None:
    records = np.random.default_rng(length).integers(0, 256, (500, length)).astype(np.uint8)
    records[0] = 0
    assert crc32c_rows(records).tolist() == [crc32c(row.tobytes()) for row in records]

"""raftos' log stays empty, whatever is asked of it."""

from __future__ import annotations

import pytest

from delaylog.replication.raftos_oracle.state import EmptyLog


def test_nothing_comes_in() -> None:
    log = EmptyLog()
    with pytest.raises(AssertionError):
        log.write(1, {})
    log.erase_from(1)
    assert (len(log), bool(log), log.last_log_index, log.last_log_term) == (0, False, 0, 0)
    with pytest.raises(IndexError):
        log[1]

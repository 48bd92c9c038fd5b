"""Verify staged transactions: the log has each part that a checkpoint may still need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from delaylog.broker.verify.physical_log import LogRange
from delaylog.broker.verify.report import Report
from delaylog.storage.log.transaction_frames import PART, PartArray


def verify_staged(saved: list[Mapping[str, Any]], log: LogRange, report: Report) -> None:
    """`saved` = the transactions of each intact checkpoint."""
    there = np.array(log.transactions, np.uint64)
    missing: dict[int, str] = {}
    for members in saved:
        for name, parts in _needed(members):
            positions = parts["position"]
            for position in positions[~np.isin(positions, there)].tolist():
                missing.setdefault(position, name)
    for position, name in sorted(missing.items()):
        report.damaged("log", position, f"a part of transaction {name!r} is missing")


def _needed(members: Mapping[str, Any]) -> Iterator[tuple[str, PartArray]]:
    for _, name, _, _, _, parts in members["open"]:
        yield name, np.frombuffer(parts["parts"], PART)
    for _, name, _, _, parts, _, _, at, *_ in members["unpublished"]:
        yield name, np.frombuffer(parts, PART)[at:]

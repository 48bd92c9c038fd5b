"""`delaylog dump` of transactions: their frames, and their part of a checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import numpy as np

from delaylog.storage.log.payloads import unpack
from delaylog.storage.log.transaction_frames import (
    ENDED_SIZE,
    PART,
    RESULTS,
    EndedTransaction,
    PublishDecision,
)
from delaylog.storage.messages.batch import Block

_ENDED_SHOWN: Final = 20


def transaction_members(payload: Block) -> dict[str, Any]:
    """The members of a TXN frame."""
    head, tail = unpack(payload)
    if head["op"] == "commit":
        head["parts"] = len(tail) // 4
    elif len(tail):
        head["bytes"] = len(tail)
    return head


def publish_members(payload: Block) -> dict[str, Any]:
    """The members of a PUBLISH frame."""
    decision = PublishDecision.decode(payload)
    return {
        "txn": decision.transaction,
        "topic": None if decision.send is None else decision.send.topic,
        "part": decision.part,
        "first": decision.first,
        "stop": decision.stop,
        "results": dict(zip(RESULTS, decision.counts, strict=True)),
    }


def saved_transactions(saved: dict[str, Any]) -> dict[str, Any]:
    """The transactions of a checkpoint, with counts of parts, and the newest that ended."""
    opened = [
        {"txn": number, "id": name, "expires": expires_ms, **_parts(parts["parts"])}
        for number, name, _, _, expires_ms, parts in saved["open"]
    ]
    unpublished = [
        {"txn": number, "id": name, "published": published, **_parts(parts)}
        for number, name, _, _, parts, _, published, *_ in saved["unpublished"]
    ]
    names, raw = saved["ended_ids"][-_ENDED_SHOWN:], saved["ended"][-_ENDED_SHOWN * ENDED_SIZE :]
    ended = [
        {"id": name} | asdict(EndedTransaction.decode(raw[at * ENDED_SIZE : (at + 1) * ENDED_SIZE]))
        for at, name in enumerate(names)
    ]
    shown = {
        "open": opened,
        "unpublished": unpublished,
        "ended": ended,
        "ended_ids": len(saved["ended_ids"]),
    }
    return saved | shown


def _parts(raw: bytes) -> dict[str, int]:
    parts = np.frombuffer(raw, PART)
    return {"parts": len(parts), "rows": int(parts["rows"].sum())}

"""Describes a message as members of an answer, from its row, its state and its record."""

from __future__ import annotations

from typing import Any

from delaylog.broker.engine.model import FoundMessage, cause_name
from delaylog.broker.engine.state import EngineState
from delaylog.storage.layout import NEVER_MS, MessageState, ref_to_id
from delaylog.storage.messages.records import Record


def describe(state: EngineState, found: FoundMessage, record: Record) -> dict[str, Any]:
    """The members of a message except its headers and its body."""
    row, entry, shown = found.row, found.entry, found.state
    cause, expires = int(entry["cause"]), int(row["expires_at"])
    members: dict[str, Any] = {
        "id": record.id or ref_to_id(found.origin),
        "state": shown.name.lower(),
        "cause": cause_name(int(entry["state"]), cause) if cause else None,
        "deliver_at_ms": int(row["deliver_at"]),
        "sent_at_ms": int(row["sent_at"]),
        "expires_at_ms": None if expires == NEVER_MS else expires,
        "attempts": int(entry["attempts"]),
        "max_retry": int(row["max_retry"]),
        "priority": int(row["priority"]),
        "key": record.key or None,
        "tags": record.tags,
    }
    if shown is MessageState.LEASED:
        until = state.leases.deadline_ms(int(entry["lease"]), found.ref)
        members["lease_until_ms"] = int(entry["time"]) if until is None else until
        lease = state.leases.get(int(entry["lease"]))
        members["consumer"] = (lease.consumer if lease else "") or None
        members["address"] = (lease.address if lease else "") or None
    elif shown >= MessageState.ACKED:
        members["ended_at_ms"] = int(entry["time"])
    return members

"""Judging a message's life, as its broker tells it, beside what its handlers wrote down.

Pure. The rules: a lease begins only where the one before was over, by the broker's clock; a
handler begins only under a lease; an ack comes after the end of the handler that had that lease,
and what was given back was given back by its handler, or had none: its worker was killed before
the answer reached it, and the broker takes the attempt back. An attempt counts if and only if it
had begun, and a message whose handler always fails is dead after the promised number of attempts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Handled:
    """One delivery of a message as its handler saw it; times of the one clock of the machine."""

    begun_ms: int
    ended_ms: int | None = None
    """When its work was done."""
    raised_ms: int | None = None
    """When it gave up instead."""


@dataclass(slots=True)
class Journals:
    """All that handlers wrote: by id, by attempt."""

    by_id: dict[str, dict[int, Handled]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Journals:
        """The journals of all workers."""
        found = cls()
        for path in paths:
            attempts: dict[tuple[str, str], int] = {}
            for line in path.read_text().splitlines():
                found._take(json.loads(line), attempts)
        return found

    def _take(self, line: Mapping[str, Any], attempts: dict[tuple[str, str], int]) -> None:
        name = line["id"]
        handled = self.by_id.setdefault(name, {})
        if line["op"] == "deliver":
            attempt = attempts[name, line["lease"]] = line["attempt"]
            if attempt in handled:
                self.wrong.append(f"{name}: attempt {attempt} was handled twice")
            handled[attempt] = Handled(line["t1"])
            return
        one = handled[attempts[name, line["lease"]]]
        if line["op"] == "ack":
            one.ended_ms = line["t0"]
        else:
            one.raised_ms = line["t0"]

    @property
    def cut_off(self) -> int:
        """Deliveries whose handlers never ended."""
        return sum(
            one.ended_ms is None and one.raised_ms is None
            for handled in self.by_id.values()
            for one in handled.values()
        )


def judge_life(
    life: Sequence[Mapping[str, Any]], handled: Mapping[int, Handled], retries: int | None = None
) -> list[str]:
    """What is wrong with one message. `retries`: of one whose handler always fails."""
    wrong: list[str] = []
    leased: dict[int, tuple[int, int]] = {}
    attempt: int | None = None
    until_ms = counted = 0
    for step in life:
        at_ms = step["at_ms"]
        match step["event"]:
            case "leased":
                if attempt is not None or at_ms < until_ms:
                    wrong.append(f"leased at {at_ms} while a lease was open until {until_ms}")
                attempt, until_ms = step["attempts"], step["lease_until_ms"]
                if attempt != counted + 1:
                    wrong.append(f"attempt {attempt} follows {counted} counted ones")
                leased[attempt] = (at_ms, until_ms)
            case "lease_extended" | "begun":
                if attempt is None or at_ms > until_ms:
                    wrong.append(f"extended at {at_ms}, after its lease was over")
                    continue
                until_ms = step["lease_until_ms"]
                leased[attempt] = (leased[attempt][0], until_ms)
            case "lease_expired":
                if at_ms < until_ms:
                    wrong.append(f"its lease until {until_ms} expired at {at_ms} already")
                one = handled.get(attempt or 0)
                counted = step.get("attempts", attempt)
                if attempt is not None and counted < attempt:
                    if one is not None and one.begun_ms < at_ms:
                        wrong.append(f"not counted at {at_ms}, though its handler had begun")
                attempt = None
            case "nacked":
                one = handled.get(attempt or 0)
                if attempt is not None and step["attempts"] < attempt:
                    if one is not None and one.begun_ms < at_ms:
                        wrong.append(f"given back untried at {at_ms}, though its handler had begun")
                elif one is None or one.raised_ms is None or one.raised_ms > at_ms:
                    wrong.append(f"given back at {at_ms}, and not by its handler")
                counted = step["attempts"]
                attempt, until_ms = None, 0
            case "acked":
                one = handled.get(attempt or 0)
                if one is None or one.ended_ms is None or one.ended_ms > at_ms:
                    wrong.append(f"acked at {at_ms} before its handler had ended")
                attempt = None
    last = life[-1] if life else {"event": "lost"}
    if retries is None and last["event"] != "acked":
        wrong.append("it was never acked")
    if retries is not None and (last["event"], last.get("attempts")) != ("dead", retries + 1):
        wrong.append(
            f"it always failed, and ended {last['event']}, not after {retries + 1} attempts"
        )
    for number, one in handled.items():
        began_ms, over_ms = leased.get(number, (0, 0))
        if not began_ms <= one.begun_ms <= over_ms:
            wrong.append(
                f"attempt {number} began at {one.begun_ms}, leased {began_ms} to {over_ms}"
            )
    return wrong


def tally(life: Sequence[Mapping[str, Any]], handled: Mapping[int, Handled]) -> Counter[str]:
    """How many of its leases ended without a handler: `uncounted`, and `counted` all the same.

    The latter had begun ahead of their handlers when their worker was killed.
    """
    found: Counter[str] = Counter()
    attempt = 0
    for step in life:
        if step["event"] == "leased":
            attempt = step["attempts"]
        elif step["event"] in ("lease_expired", "dead"):
            one = handled.get(attempt)
            if one is None or one.begun_ms >= step["at_ms"]:
                found["counted" if step["attempts"] == attempt else "uncounted"] += 1
    return found

"""Histories as short texts, so that a case reads as a table of what clients did.

0-2     send a due=100 body=x        times t0-t1, the op, the id, then fields
90-101  deliver a now=100 lease=L    `?` after an op means an unknown outcome, `!` a refused one
500     kill                         a mark
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from delaylog.broker.history import CheckReport, CheckSettings, HistoryChecker, read_items

Judge = Callable[..., CheckReport]

_OUTCOMES = {"?": None, "!": False}


def lines_of(text: str) -> list[bytes]:
    """The JSON lines of a short text."""
    records = []
    for line in text.strip().splitlines():
        times, op, *words = line.partition("#")[0].split()
        record: dict[str, Any]
        if times.isdigit():
            record = {"mark": op, "t": int(times)}
        else:
            first, last = times.split("-")
            record = {"t0": int(first), "t1": int(last), "op": op.rstrip("?!")}
            record["ok"] = _OUTCOMES.get(op[-1], True)
        for word in words:
            name, equals, value = word.partition("=")
            if not equals:
                record["id"] = word
            elif value in ("true", "false"):
                record[name] = value == "true"
            else:
                record[name] = int(value) if value.lstrip("-").isdigit() else value
        records.append(json.dumps(record).encode() + b"\n")
    return records


@pytest.fixture(scope="session")
def judge() -> Judge:
    """Check a short text under the given settings; leases last 1,000 ms unless it says more."""

    def judge(text: str, **settings: Any) -> CheckReport:
        options: dict[str, Any] = {"bound_ms": 1_000, "lease_ms": 1_000, "slack_ms": 10}
        checker = HistoryChecker(CheckSettings(**{**options, **settings}))
        checker.extend(read_items(lines_of(text), file="case"))
        return checker.finish()

    return judge

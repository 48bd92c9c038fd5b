"""The bench of the dashboard measures each call that reads, or says that no page makes it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Final

from delaylog.broker.calls.routing import resolve
from delaylog.contract.calls.table import ALL

BENCH: Final = Path(__file__).parents[2] / "bench"
NO_PAGE: Final = {
    "getArchive",
    "getClaim",
    "getGroup",
    "getHold",
    "getPrincipal",
    "getSchedule",
    "getTail",
    "getTarget",
    "getTransaction",
    "readClaim",
    "listPrincipals",
    "stream",
}


def dashboard() -> Any:
    """The module, whose neighbours are imported by bare name."""
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module("dashboard")
    finally:
        sys.path.remove(str(BENCH))


def test_each_call_that_reads_is_measured() -> None:
    paths = [path.partition("?")[0] for path in dashboard().CALLS.values()]
    measured = {resolve(path, "GET").call.name for path in paths if path.startswith("/v1")}
    reads = {call.name for call in ALL if call.request_line.startswith("GET ")}
    assert measured == reads - NO_PAGE
    assert "/metrics" in paths

"""JSON schema of a push target in an answer."""

from __future__ import annotations

from typing import Final

from delaylog.broker.web.openapi.schemas import COUNT, TEXT, TEXT_OR_NULL, list_of, object_of
from delaylog.contract.calls.targets import MODES
from delaylog.contract.members import Schema

_PROPERTIES: Final[dict[str, Schema]] = {
    "topic": TEXT,
    "namespace": TEXT,
    "group": TEXT,
    "url": TEXT,
    "mode": {"enum": list(MODES)},
    "timeout_ms": COUNT,
    "concurrency": COUNT,
    "per_second": {"type": ["number", "null"]},
    "digests": list_of(TEXT),
    "secret": TEXT_OR_NULL,
    "state": {"enum": ["closed", "open", "half-open", "throttled", "disabled"]},
    "disabled": TEXT,
    "reason": TEXT,
    "open_until_ms": COUNT,
    "turns": COUNT,
    "throttled_until_ms": COUNT,
    "failing_since_ms": COUNT,
}
TARGET: Final = object_of(**_PROPERTIES)

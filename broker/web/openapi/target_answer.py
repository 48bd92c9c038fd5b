"""JSON schema of a push target in an answer."""

from __future__ import annotations

from typing import Final

from delaylog.storage.calls.of_targets import MODES
from delaylog.storage.messages.members import Schema

_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_PROPERTIES: Final[dict[str, Schema]] = {
    "topic": _TEXT,
    "namespace": _TEXT,
    "group": _TEXT,
    "url": _TEXT,
    "mode": {"enum": list(MODES)},
    "timeout_ms": _COUNT,
    "concurrency": _COUNT,
    "per_second": {"type": ["number", "null"]},
    "digests": {"type": "array", "items": _TEXT},
    "secret": {"type": ["string", "null"]},
    "state": {"enum": ["closed", "open", "half-open", "throttled", "disabled"]},
    "disabled": _TEXT,
    "reason": _TEXT,
    "open_until_ms": _COUNT,
    "turns": _COUNT,
    "throttled_until_ms": _COUNT,
    "failing_since_ms": _COUNT,
}
TARGET: Final[Schema] = {
    "type": "object",
    "properties": _PROPERTIES,
    "required": list(_PROPERTIES),
}

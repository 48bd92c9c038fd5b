"""JSON schema of a push target in an answer."""

from __future__ import annotations

from typing import Final

from delaylog.storage.calls.of_targets import MODES
from delaylog.storage.messages.members import Schema

_PROPERTIES: Final[dict[str, Schema]] = {
    **dict.fromkeys(
        ("topic", "namespace", "group", "url", "disabled", "reason"), {"type": "string"}
    ),
    **dict.fromkeys(
        (
            "timeout_ms",
            "concurrency",
            "open_until_ms",
            "turns",
            "throttled_until_ms",
            "failing_since_ms",
        ),
        {"type": "integer", "minimum": 0},
    ),
    "mode": {"enum": list(MODES)},
    "per_second": {"type": ["number", "null"]},
    "digests": {"type": "array", "items": {"type": "string"}},
    "secret": {"type": ["string", "null"]},
    "state": {"enum": ["closed", "open", "half-open", "throttled", "disabled"]},
}
TARGET: Final[Schema] = {
    "type": "object",
    "properties": _PROPERTIES,
    "required": list(_PROPERTIES),
}

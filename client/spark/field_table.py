"""The fields of a message, except body and due time, as columns of a DataFrame.

Made from contract/message_fields.py by `make twins`: change that one.
"""

from __future__ import annotations

from typing import Final

UNIX_MS_MIN: Final = 1_000_000_000_000
"""2001-09-09: an earlier due time was made from another unit."""
FIELD_TYPES: Final = {
    "id": "string",
    "key": "string",
    "tags": "array<string>",
    "headers": "array<struct<key string, value binary>>",
    "priority": "int",
    "ttl_ms": "bigint",
    "max_retry": "int",
    "merge": "string",
    "backoff": "struct<first_ms bigint, max_ms bigint, factor double, jitter double>",
}
"""The type of each field in Spark SQL."""
TEXT_BYTES_MAX: Final = {
    "id": 255,
    "key": 255,
}
"""The greatest length of a text in bytes of UTF-8."""
WORDS: Final = {
    "merge": ("keep", "replace", "reject"),
}
"""The words of a field that is a choice."""

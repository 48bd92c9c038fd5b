"""The settings of a topic as members of a request: names, bounds and documentation.

The engine has their types and defaults, and needs NumPy, which a client is installed without.
"""

from __future__ import annotations

from typing import Final

from delaylog.contract.members import Choice, Flag, Int, Number, OneOf
from delaylog.contract.message_fields import BACKOFF, MAX_RETRY, MERGE, TTL_MS
from delaylog.contract.shape import Nested, Shape

ORDERS: Final = ("time", "priority")
MERGE_LEASED: Final = ("keep", "successor")
_DAY_MS: Final = 86_400_000
SETTINGS: Final = Shape(
    "Settings of a topic",
    Choice("order", "time: by due time; priority: highest first of what is due.", ORDERS),
    Int(
        "aging_ms",
        "In priority order: each such wait adds one to the priority; 0: never.",
        0,
        _DAY_MS,
    ),
    MERGE,
    Choice("merge_leased", "What a repeated id does while its message is leased.", MERGE_LEASED),
    TTL_MS,
    MAX_RETRY,
    BACKOFF,
    Int("lease_ms", "The lease of a receive that gives none.", 1, _DAY_MS // 2),
    Int("ended_keep_ms", "How long ended messages can be read.", 0, _DAY_MS),
    Int("dead_keep_ms", "How long dead letters are kept.", 0, 90 * _DAY_MS),
    Flag("dead_expired", "Messages that expired undelivered become dead letters too."),
    Nested(
        "rate_limit",
        "Deliveries of each group.",
        Shape(
            "Rate limit",
            Number("per_second", "Deliveries a second.", 0.001, 1e9),
            Int("burst", "Deliveries at once after a pause.", 1, 1_000_000),
            doc="a rate limit",
        ),
    ),
    Nested(
        "quota",
        "Limits on what the topic accepts; 0: no limit.",
        Shape(
            "Quota",
            Int("rate", "New messages a second, over ten seconds.", 0, 10**9),
            Int("pending", "Living messages.", 0, 2**53),
            Int("bytes", "Bytes of living messages.", 0, 2**53),
            Int("horizon_ms", "How far ahead a message may be due.", 0, 2**53),
            doc="a quota",
        ),
    ),
    OneOf("slots", "For clients that shard by key.", tuple(1 << power for power in range(15))),
    Flag("default_group", "False: only named groups see what is sent.", default=True),
    doc="topic settings",
)

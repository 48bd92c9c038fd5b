"""What the drills add: a verb."""

from __future__ import annotations

from typing import Final

from delaylog.broker.process.leaves import Leaf, Verb

LEAF: Final = Leaf(
    "drills",
    verbs=(
        Verb(
            "drill",
            "a cluster",
            "verb",
            "test the failover of three nodes here",
            calls=False,
            folder="drills",
        ),
    ),
    errors=(("delaylog.broker.drills.kinds", "DrillError", "drill"),),
)

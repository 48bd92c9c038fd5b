"""What recorded histories add: a verb."""

from __future__ import annotations

from typing import Final

from delaylog.broker.process.leaves import Leaf, Verb

LEAF: Final = Leaf(
    "history",
    verbs=(
        Verb(
            "check",
            "data folders",
            "verb",
            "check recorded histories",
            calls=False,
            folder="history",
        ),
    ),
)

"""The list of commands in docs/REDIS.md, made from the table that the endpoint serves by.

tests/docs/generated.py writes it into the page.
"""

from __future__ import annotations

import textwrap
from typing import Final

from delaylog.broker.keyspace.registry import COMMANDS
from delaylog.broker.resp.face import NATIVE_VERBS

_SHOWN: Final = {"module": "delay log", "sorted-set": "sorted set", "transactions": "transaction"}


def listed() -> str:
    """The list in Markdown: families and their commands."""
    assert NATIVE_VERBS, "importing them fills the table"
    families: dict[str, list[str]] = {}
    for _, entry in sorted(COMMANDS.items()):
        name = entry.name.decode().upper()
        if entry.subcommands:
            name += f" ({', '.join(sub.decode().upper() for sub in sorted(entry.subcommands))})"
        families.setdefault(_SHOWN.get(entry.group, entry.group), []).append(name)
    items = [f"- **{family}**: {', '.join(names)}" for family, names in sorted(families.items())]
    return "\n".join(textwrap.fill(item, 120, subsequent_indent="  ") for item in items)

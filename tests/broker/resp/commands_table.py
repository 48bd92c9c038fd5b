"""The list of commands in docs/REDIS.md, made from the table that the endpoint serves by.

Run this file to write it into the document; test_redis_doc.py fails while it is out of date.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

from delaylog.broker.keyspace.registry import COMMANDS
from delaylog.broker.resp.face import NATIVE_VERBS

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "REDIS.md"
BEGIN: Final = "<!-- made by tests/broker/resp/commands_table.py -->"
END: Final = "<!-- to here -->"
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


def put_in(document: str) -> str:
    """The document with the list as it is now."""
    head, _, rest = document.partition(BEGIN)
    assert rest, "the document has no place for the list"
    return f"{head}{BEGIN}\n\n{listed()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(put_in(DOCUMENT.read_text()))

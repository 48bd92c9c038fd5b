"""The table of commands in docs/REDIS.md, made from the table that the endpoint serves by.

Run this file to write it into the document; test_redis_doc.py fails while it is out of date.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from delaylog.broker.keyspace.command import Command
from delaylog.broker.keyspace.registry import COMMANDS
from delaylog.broker.resp.face import NATIVE_VERBS

DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "REDIS.md"
BEGIN: Final = "<!-- made by tests/broker/resp/commands_table.py -->"
END: Final = "<!-- to here -->"
_SHOWN: Final = {"module": "delay log", "sorted-set": "sorted set", "transactions": "transaction"}
_ALL_REFUSED: Final = "all of it"


def table() -> str:
    """The table in Markdown: families, their commands, and what is known only to be refused."""
    assert NATIVE_VERBS, "importing them fills the table"
    families: dict[str, tuple[list[str], list[str]]] = {}
    for _, entry in sorted(COMMANDS.items()):
        group = entry.group
        done, refused = families.setdefault(_SHOWN.get(group, group), ([], []))
        name = entry.name.decode().upper()
        if not entry.subcommands:
            (refused if _is_refused(entry) else done).append(name)
            continue
        subs = sorted(entry.subcommands.items())
        good = [sub.decode().upper() for sub, each in subs if not _is_refused(each)]
        bad = [sub.decode().upper() for sub, each in subs if _is_refused(each)]
        if good or entry.arity == -1:
            done.append(f"{name} ({', '.join(good)})")
        if bad:
            refused.append(f"{name} ({', '.join(bad) if good else _ALL_REFUSED})")
    rows = ["| family | commands | known, and refused |", "|---|---|---|"]
    for family, (done, refused) in sorted(families.items()):
        rows.append(f"| {family} | {', '.join(done)} | {', '.join(refused)} |")
    return "\n".join(rows)


def _is_refused(entry: Command) -> bool:
    """Commands that are there to say no begin their docstring with it."""
    return (entry.function.__doc__ or "").startswith("Refused")


def put_in(document: str) -> str:
    """The document with the table as it is now."""
    head, _, rest = document.partition(BEGIN)
    assert rest, "the document has no place for the table"
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(put_in(DOCUMENT.read_text()))

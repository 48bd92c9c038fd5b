"""What HELP of a family of subcommands says: made from the table of commands and its docstrings."""

from __future__ import annotations

from delaylog.broker.keyspace.registry import COMMANDS, Command
from delaylog.broker.keyspace.replies import Reply, Status


def summary_of(entry: Command) -> bytes:
    """What a command does, in one sentence without its full stop."""
    text = entry.function.__doc__ or ""
    return text.strip().partition("\n")[0].rstrip(".").encode()


def help_lines(name: bytes) -> Reply:
    """The answer to HELP."""
    word = name.upper()
    lines = [b"%b <subcommand> [<arg> [value] [opt] ...]. Subcommands are:" % word]
    for sub, entry in sorted(COMMANDS[name].subcommands.items()):
        lines += [sub.upper(), b"    %b." % summary_of(entry)]
    return [Status(line) for line in lines]

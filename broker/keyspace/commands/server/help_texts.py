"""HELP of the commands with subcommands, generated from the table and the docstrings."""

from __future__ import annotations

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.registry import COMMANDS, command
from delaylog.broker.keyspace.replies import Reply, Status
from delaylog.broker.keyspace.running.run import Run


def add_help() -> None:
    """Add a HELP subcommand to every command with subcommands, after all others are registered."""
    for name, entry in COMMANDS.items():
        if entry.subcommands:
            command(f"{name.decode()}|help", 2, entry.group, "loading stale own")(_help)


def summary_of(entry: Command) -> bytes:
    """Return the first line of a command's docstring, without the full stop."""
    text = entry.function.__doc__ or ""
    return text.strip().partition("\n")[0].rstrip(".").encode()


def _help(run: Run, argv: Args) -> Reply:
    """List the subcommands."""
    name = argv[0].lower()
    lines = [b"%b <subcommand> [<arg> [value] [opt] ...]. Subcommands are:" % name.upper()]
    for sub, entry in sorted(COMMANDS[name].subcommands.items()):
        lines += [sub.upper(), b"    %b." % summary_of(entry)]
    return [Status(line) for line in lines]

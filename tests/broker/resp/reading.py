"""How the tests of the parser feed it, and encode commands."""

from __future__ import annotations

from delaylog.broker.resp.parser import CommandParser
from tests.broker.resp.request_table import Commands


class LineByLine(CommandParser):
    """A parser without the fast path for pipelines."""

    def _read(self, commands: Commands, max: int) -> None:
        self._read_line_by_line(commands, max)


def read(parser: CommandParser, pieces: list[bytes], at_once: int = 1000) -> Commands:
    """All commands of the pieces, asked for until there are no more."""
    commands: Commands = []
    for piece in pieces:
        parser.feed(piece)
        while found := parser.next_commands(at_once):
            assert len(found) <= at_once
            commands += found
    return commands


def full(error: bytes | None) -> bytes | None:
    return None if error is None else b"Protocol error: " + error


def written(commands: Commands) -> bytes:
    out = b""
    for command in commands:
        out += b"*%d\r\n" % len(command)
        for argument in command:
            out += b"$%d\r\n%b\r\n" % (len(argument), argument)
    return out

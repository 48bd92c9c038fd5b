"""Commands and scripts on behalf of a recipe.

The one rule: a broken connection is tried twice more; so a call may have been carried out twice,
which each recipe bears because it delivers at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha1
from typing import TypeVar

from tests.redis.recipes.connection import (
    Argument,
    Command,
    CommandRefused,
    Connection,
    EndpointUnreachable,
    Reply,
)

CONNECTION_RETRIES = 2
"""How often a call is repeated when its connection broke."""

Answer = TypeVar("Answer")


class Script:
    """A Lua script, sent by its digest; the text goes along when the endpoint lacks it."""

    def __init__(self, lua: str) -> None:
        self.lua = lua
        self.digest = sha1(lua.encode(), usedforsecurity=False).hexdigest()


class Calls:
    """One connection, as the recipes use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def one(self, *command: Argument) -> Reply:
        """One command."""
        return _tried(lambda: self._connection.execute(*command))

    def many(self, commands: Sequence[Command]) -> list[Reply]:
        """Commands in one trip; a repetition sends all of them again."""
        return _tried(lambda: self._connection.pipeline(commands)) if commands else []

    def script(self, script: Script, keys: Sequence[str], *args: Argument) -> Reply:
        """One script."""
        tail = (len(keys), *keys, *args)

        def run() -> Reply:
            try:
                return self._connection.execute("EVALSHA", script.digest, *tail)
            except CommandRefused as refused:
                if refused.code != "NOSCRIPT":
                    raise
                return self._connection.execute("EVAL", script.lua, *tail)

        return _tried(run)


def _tried(call: Callable[[], Answer]) -> Answer:
    for _ in range(CONNECTION_RETRIES):
        try:
            return call()
        except EndpointUnreachable:
            continue
    return call()

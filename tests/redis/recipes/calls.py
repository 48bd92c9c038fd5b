"""Commands and scripts on behalf of a recipe.

A script is sent by its digest, and whole only if the server does not know the digest.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1

from tests.redis.recipes.connection import Argument, Command, CommandRefused, Connection, Reply


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
        return self._connection.execute(*command)

    def many(self, commands: Sequence[Command]) -> list[Reply]:
        """Commands in one trip."""
        return self._connection.pipeline(commands) if commands else []

    def script(self, script: Script, keys: Sequence[str], *args: Argument) -> Reply:
        """One script."""
        tail = (len(keys), *keys, *args)
        try:
            return self._connection.execute("EVALSHA", script.digest, *tail)
        except CommandRefused as refused:
            if refused.code != "NOSCRIPT":
                raise
            return self._connection.execute("EVAL", script.lua, *tail)

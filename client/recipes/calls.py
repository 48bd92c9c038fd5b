"""Commands and scripts on behalf of a recipe, with its one kind of failure.

The one rule: what goes wrong leaves as `RecipeFailed`, which names the operation and the key. A
broken connection is tried twice more; so a call may have been carried out twice, which each recipe
bears because it delivers at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha1
from typing import TypeVar

from delaylog.client.recipes.connection import (
    Argument,
    Command,
    CommandRefused,
    Connection,
    EndpointError,
    EndpointUnreachable,
    Reply,
)

CONNECTION_RETRIES = 2
"""How often a call is repeated when its connection broke."""

Answer = TypeVar("Answer")


class RecipeFailed(RuntimeError):
    """A call of a recipe failed: `operation` on `key`; the cause is chained.

    After an `EndpointUnreachable` it may have been carried out: call again, deliveries repeat at
    worst. After a `CommandRefused` calling again is of no use.
    """

    def __init__(self, operation: str, key: str, cause: EndpointError) -> None:
        self.operation = operation
        self.key = key
        super().__init__(f"{operation} of {key} failed: {cause}")


class Script:
    """A Lua script, sent by its digest; the text goes along when the endpoint lacks it."""

    def __init__(self, lua: str) -> None:
        self.lua = lua
        self.digest = sha1(lua.encode(), usedforsecurity=False).hexdigest()


class Calls:
    """One connection, as the recipes use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def one(self, operation: str, *command: Argument) -> Reply:
        """One command; its second word is the key."""
        return self._tried(operation, str(command[1]), lambda: self._connection.execute(*command))

    def many(self, operation: str, key: str, commands: Sequence[Command]) -> list[Reply]:
        """Commands in one trip; a repetition sends all of them again."""
        if not commands:
            return []
        return self._tried(operation, key, lambda: self._connection.pipeline(commands))

    def script(self, operation: str, script: Script, keys: Sequence[str], *args: Argument) -> Reply:
        """One script."""
        tail = (len(keys), *keys, *args)

        def run() -> Reply:
            try:
                return self._connection.execute("EVALSHA", script.digest, *tail)
            except CommandRefused as refused:
                if refused.code != "NOSCRIPT":
                    raise
                return self._connection.execute("EVAL", script.lua, *tail)

        return self._tried(operation, keys[0], run)

    def _tried(self, operation: str, key: str, call: Callable[[], Answer]) -> Answer:
        tries_left = CONNECTION_RETRIES
        while True:
            try:
                return call()
            except EndpointUnreachable as error:
                if tries_left == 0:
                    raise RecipeFailed(operation, key, error) from error
                tries_left -= 1
            except EndpointError as error:
                raise RecipeFailed(operation, key, error) from error

"""What a recipe asks of a Redis endpoint, and how the endpoint refuses.

The one rule: a recipe needs two calls only, one command and many commands in one trip, so a test
can record what goes over a connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import redis
from redis import exceptions

Argument = str | bytes | int | float
"""One word of a command; numbers travel as their shortest text."""

Command = Sequence[Argument]

Reply = Any
"""What came back, in the shape of RESP2 or RESP3; `replies` reads either."""


class CommandRefused(Exception):
    """The endpoint answered with an error; `code` is its first word, such as NOSCRIPT."""

    def __init__(self, text: str) -> None:
        self.code = text.partition(" ")[0]
        super().__init__(text)


class Connection(Protocol):
    """A way to an endpoint. It may be shared by threads if the thing behind it may."""

    def execute(self, *args: Argument) -> Reply:
        """Carry out one command, or raise `CommandRefused`."""
        ...

    def pipeline(self, commands: Sequence[Command]) -> list[Reply]:
        """Carry out commands in one trip, in order and not as a transaction.

        All of them run; the first refusal among the replies is raised afterwards.
        """
        ...


class RedisPyConnection:
    """A sync client of redis-py, decoding or not, with either protocol."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def execute(self, *args: Argument) -> Reply:
        try:
            return self._client.execute_command(*args)
        except exceptions.ResponseError as error:
            raise _refusal(error) from error

    def pipeline(self, commands: Sequence[Command]) -> list[Reply]:
        with self._client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies: list[Reply] = list(pipe.execute(raise_on_error=False))
        for reply in replies:
            if isinstance(reply, exceptions.ResponseError):
                raise _refusal(reply) from reply
        return replies


def _refusal(error: Exception) -> CommandRefused:
    """The endpoint's own words: redis-py cuts the code off where it knows it."""
    code = getattr(error, "status_code", None)
    return CommandRefused(f"{code} {error}" if code else str(error))

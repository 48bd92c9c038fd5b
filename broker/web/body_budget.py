"""Memory for request bodies: one limit for the whole process, for any number of connections.

Bytes count when they arrive, so a client that only announces a large body takes no memory from
others. A body that arrives together with its head does not count, because it is small.
"""

from __future__ import annotations

from delaylog.broker.calls.problems import Problem
from delaylog.contract.members import limit_note


class BodyBudget:
    """Bytes of bodies that have arrived and are not answered yet."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes_held = 0

    def take(self, size: int) -> None:
        """Count bytes that have arrived. Raises a Problem if they exceed the limit."""
        if self.bytes_held + size > self._bytes_max:
            raise Problem(
                "not_ready",
                f"the bodies of all requests together have at most {self._bytes_max} bytes"
                + limit_note("bodies_bytes_max")
                + "; try again",
            )
        self.bytes_held += size

    def give_back(self, size: int) -> None:
        """Release the bytes of a request that has ended."""
        self.bytes_held -= size
        assert self.bytes_held >= 0, "no body gives back what it did not take"

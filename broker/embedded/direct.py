"""What the plain clients carry their calls by where the broker is in this process: no connection.

The one rule: closing such a client leaves the broker alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from delaylog.client import AsyncPlainClient, PlainClient
from delaylog.client.calls import Call
from delaylog.client.calls.places import Places

if TYPE_CHECKING:
    from delaylog.client._async.transport import AsyncTransport
    from delaylog.client._sync.transport import Transport

T = TypeVar("T")


class Carrier(Protocol):
    """A broker that carries calls of the API out."""

    def call(self, call: Call[T]) -> T:
        """Carry a call out."""


class AsyncCarrier(Protocol):
    """The same for event loops."""

    async def call(self, call: Call[T]) -> T:
        """Carry a call out."""


def plain_client(broker: Carrier, places: Places) -> PlainClient:
    """A plain client of a broker in this process."""
    return PlainClient.on(cast("Transport", _Direct(broker)), places)


def async_plain_client(broker: AsyncCarrier, places: Places) -> AsyncPlainClient:
    """The same for event loops."""
    return AsyncPlainClient.on(cast("AsyncTransport", _AsyncDirect(broker)), places)


class _Direct:
    def __init__(self, broker: Carrier) -> None:
        self._broker = broker

    def open(self) -> None:
        """There is nothing to open."""

    def carry(self, call: Call[T]) -> T:
        return self._broker.call(call)

    def close(self) -> None:
        """There is no connection; the broker goes on."""


class _AsyncDirect:
    def __init__(self, broker: AsyncCarrier) -> None:
        self._broker = broker

    def open(self) -> None:
        """There is nothing to open."""

    async def carry(self, call: Call[T]) -> T:
        return await self._broker.call(call)

    async def close(self) -> None:
        """There is no connection; the broker goes on."""

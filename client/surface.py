"""The Protocols that a `Client`, an `AsyncClient` and embedded brokers fulfil."""

from delaylog.client._async.surface import AsyncQueueClient
from delaylog.client._sync.surface import QueueClient

__all__ = ["AsyncQueueClient", "QueueClient"]

"""The base classes of `Client`, `AsyncClient` and embedded brokers, which have all their calls."""

from delaylog.client._async.surface import AsyncQueueClient
from delaylog.client._sync.surface import QueueClient

__all__ = ["AsyncQueueClient", "QueueClient"]

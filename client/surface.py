"""The Protocols that `Client`, `AsyncClient` and embedded brokers implement."""

from delaylog.client._async.surface import AsyncQueueClient
from delaylog.client._sync.surface import QueueClient

__all__ = ["AsyncQueueClient", "QueueClient"]

"""Sending: messages gathered into batches, repeated without adding anything, each with its end."""

from delaylog.client.sending.outbox import Outbox, OutboxFull, SendLimits
from delaylog.client.sending.producers import Producers
from delaylog.client.sending.sending import AsyncSending, Sending, ThreadSending

__all__ = [
    "AsyncSending",
    "Outbox",
    "OutboxFull",
    "Producers",
    "SendLimits",
    "Sending",
    "ThreadSending",
]

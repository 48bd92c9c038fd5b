"""Sending: messages gathered into batches, repeated without adding anything, each with its end."""

from delaylog.client.sending.async_sender import AsyncSender
from delaylog.client.sending.direct_sender import DirectSender
from delaylog.client.sending.outbox import Outbox, OutboxFull, SendLimits
from delaylog.client.sending.producers import Producers
from delaylog.client.sending.row import Row, check_topic, make_row
from delaylog.client.sending.sending import AsyncSending, Sending, ThreadSending
from delaylog.client.sending.thread_sender import ThreadSender

__all__ = [
    "AsyncSender",
    "AsyncSending",
    "DirectSender",
    "Outbox",
    "OutboxFull",
    "Producers",
    "Row",
    "SendLimits",
    "Sending",
    "ThreadSender",
    "ThreadSending",
    "check_topic",
    "make_row",
]

"""Workers: handlers for the messages of a topic, in an event loop or in threads.

Most programs use the `consumer` decorator of `Client` and `AsyncClient`. Each consumer has a
`desk`, a state machine without I/O that decides which messages to handle, extend, settle and fetch.
A "shift" drives the desk with tasks or threads.
"""

from delaylog.client.handlers import Retry
from delaylog.client.workers.consumer import Backoff, Consumer

__all__ = ["Backoff", "Consumer", "Retry"]

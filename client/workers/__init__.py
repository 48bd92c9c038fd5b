"""Workers: handlers for the messages of a topic, in an event loop or in threads.

Most programs use the `consumer` decorator of `Client` and `AsyncClient`. The parts: a pure `desk`
for each consumer (what to begin, extend, settle and ask for), and a driver of tasks or threads.
"""

from delaylog.client._async.workers.worker import AsyncWorker
from delaylog.client._sync.workers.worker import ThreadWorker
from delaylog.client.workers.backoff import Backoff
from delaylog.client.workers.consumer import Consumer
from delaylog.client.workers.retry import Retry

__all__ = ["AsyncWorker", "Backoff", "Consumer", "Retry", "ThreadWorker"]
